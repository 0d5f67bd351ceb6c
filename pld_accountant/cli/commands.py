"""The command ``pld-accountant``.

The exit status is 0, or 2 with one line on standard error for a user error.  Any other error is a bug and shows its
traceback.  Each command imports the slow libraries that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from . import options
from .options import FILE, PROGRAM, STDOUT, Program, example, user_errors

__all__ = ["main"]


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="individual-pld-accountant", prog_name=PROGRAM)
def main() -> None:
    """Every person's own privacy loss, from gradient norms, certified."""


@main.command(
    short_help="Train on handwritten digits with DP-SGD and account for every example.",
    epilog=example("demo --steps 100 --out trial"),
)
@click.option("--out", type=FILE, default=Path("demo-output"), show_default=True, help="Folder for the output files.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=1000, show_default=True, help="Steps of training.")
@options.quiet
def demo(out: Path, seed: int, steps: int, quiet: bool) -> None:
    """Train a small network on handwritten digits with DP-SGD and account for every example."""
    from ..demo import digits
    from ..report.outputs import check_folder, write_all

    with user_errors():
        digits.check_libraries()
        check_folder(next(p for p in (out, *out.absolute().parents) if p.exists()))
    say = (lambda text: None) if quiet else click.echo
    say(digits.announcement(steps))
    done = digits.run(seed, steps, _bars(quiet))
    say(digits.report(done))
    with user_errors():
        files = digits.outputs(done, out)
        out.mkdir(parents=True, exist_ok=True)
        write_all(files)
    say(f"\nWritten to {out}: {', '.join(path.name for path in files)}")


def _bars(quiet: bool) -> Callable[[str, str], Any]:
    from .progress import progress_bar

    return partial(progress_bar, hidden=quiet)


@main.command(
    short_help="The epsilon of every example in a log of gradient norms.",
    epilog=example(
        "epsilon norms.npy --noise-multiplier 2 --sample-rate 0.005 --max-grad-norm 5 --delta 1e-5",
        "--orientation steps --out eps.csv --figure hist.png",
    ),
)
@options.of_a_log
@click.option("--out", type=FILE, help="A row per example, as .parquet, .csv or .npz.")
@click.option("--figure", type=FILE, help="The histogram, as .png or .pdf.")
@click.option("--json", "json_file", type=FILE, help="The summary as JSON; - writes it to standard output, alone.")
@click.option("--ledger", "ledger_file", type=FILE, help="The ledger of counted norms, for `report`.")
def epsilon(
    norms: Path,
    out: Path | None,
    figure: Path | None,
    json_file: Path | None,
    ledger_file: Path | None,
    delta: float,
    direction: str,
    min_group: int,
    quiet: bool,
    quantiles: Sequence[float],
    **log: Any,
) -> None:
    """The epsilon of every example in a log of gradient norms.

    NORMS holds the norm of every example's gradient at every step, before clipping, also for examples that were not
    sampled: .npy, .npz, .parquet, .zarr or .h5, a row per step and a column per example.
    """
    from ..report import calls, outputs

    files = (out, figure, None if json_file == STDOUT else json_file)
    wanted = calls.planned(*files)
    if ledger_file is not None:
        wanted.append((ledger_file, ()))
    _check_files(wanted, (norms, log["groups"]))
    bars = _bars(quiet)
    read = _read(norms, bars, **log)
    with bars("Accounting", "examples") as show:
        found = calls.summarise(
            read.ledger,
            delta,
            labels=read.labels,
            probabilities=quantiles,
            direction=direction,
            parameters=read.facts,
            source=read.source,
            min_group=min_group,
            progress=show,
        )
    writers = calls.result_writers(found, *files)
    if ledger_file is not None:
        writers[ledger_file] = read.ledger.save
    with user_errors():
        outputs.write_all(writers)
    _tell(found, read.note, writers, json_file, quiet)


def _tell(found: Any, note: str, written: Iterable[Path], json_file: Path | None, quiet: bool) -> None:
    """Print the JSON if it goes to standard output, else the text and the names of the files unless `quiet`."""
    from ..report.outputs import json_text

    if note:
        click.echo(note, err=True)
    if json_file == STDOUT:
        click.echo(json_text(found.as_dict()), nl=False)
    elif not quiet:
        click.echo(found.text())
        _echo_written(written)


def _check_files(wanted: Iterable[tuple[Path | None, Sequence[str]]], inputs: Iterable[Path | None]) -> None:
    from ..report import outputs

    with user_errors():
        outputs.check(
            [(path, endings) for path, endings in wanted if path is not None],
            inputs=[path for path in inputs if path is not None],
        )


def _echo_written(files: Iterable[Path]) -> None:
    if files:
        click.echo(f"\nWritten: {', '.join(str(path) for path in files)}")


class _Read(NamedTuple):
    """A log as it was read: `index` holds the people's numbers in the log, `facts` the parameters for the outputs."""

    ledger: Any
    labels: Any
    index: Any
    facts: dict[str, Any]
    source: Any
    note: str


def _read(
    norms: Path,
    bars: Callable[[str, str], Any],
    *,
    orientation: str | None,
    dataset: str | None,
    examples: int | None,
    groups: Path | None,
    people: int | None = None,
    **parameters: Any,
) -> _Read:
    import numpy as np

    from ..files.fingerprint import fingerprint
    from ..files.groups import read_labels
    from ..files.norm_log import PeopleSubset, open_norms
    from ..ledger import Ledger

    with user_errors(), open_norms(norms, orientation=orientation, dataset=dataset, people=examples) as log:
        everybody = log.shape[1]
        labels = None if groups is None else read_labels(groups, everybody, hint=log.hint)
        facts = {**parameters, "norms": norms.name, "orientation": log.orientation}
        index, source = np.arange(everybody), cast(Any, log)
        if people is not None and people < everybody:
            index = np.sort(np.random.default_rng(0).choice(everybody, people, replace=False))
            labels, source = None if labels is None else labels[index], PeopleSubset(log, index)
            facts["sample"] = f"{people} of {everybody} people"
        with bars("Reading", "steps") as show:
            ledger = Ledger.from_norms(source, **parameters, progress=show)
        with bars("Fingerprint", "bytes") as show:
            return _Read(ledger, labels, index, facts, fingerprint(norms, progress=show), _assumption(log))


def _assumption(log: Any) -> str:
    """A note on a log whose orientation was assumed; empty for any other log."""
    if not log.assumed:
        return ""
    read = f"{log.name} does not state its orientation and was read as {log.shape[0]} steps of {log.shape[1]} people"
    return f"{PROGRAM}: note: {read}, with a row per step; --orientation or --examples settles it"


@main.command(
    short_help="One HTML page on everybody's epsilon from a ledger, with charts and tables.",
    epilog=example("report ledger.npz --delta 1e-5 --groups labels.npy --out report.html"),
)
@click.argument("ledger_file", metavar="LEDGER", type=FILE)
@options.delta
@options.direction
@options.groups
@options.min_group
@options.quiet
@click.option(
    "--deltas",
    callback=options.numbers(lambda validate, value: validate.delta(value)),
    help="Further deltas for the table, separated by commas.  [default: --delta times 1e2, 1e-1, 1e-3 and 1e-5]",
)
@click.option("--title", default="Individual privacy loss", show_default=True, help="The heading.")
@click.option("--out", type=FILE, required=True, help="The page, as .html.")
def report(
    ledger_file: Path,
    delta: float,
    direction: str,
    groups: Path | None,
    min_group: int,
    quiet: bool,
    deltas: Sequence[float] | None,
    title: str,
    out: Path,
) -> None:
    """One HTML page on everybody's epsilon, with charts and tables.

    LEDGER is a file written by `pld-accountant epsilon ... --ledger LEDGER` or by `Ledger.save`.
    """
    from ..files.fingerprint import fingerprint
    from ..files.groups import read_labels
    from ..ledger import Ledger
    from ..report import outputs
    from ..report.content import gather
    from ..report.html.page import page_writer
    from ..report.individuals import assess

    bars = _bars(quiet)
    _check_files([(out, outputs.PAGE_ENDINGS)], (ledger_file, groups))
    with user_errors():
        ledger = Ledger.load(ledger_file)
        labels = None if groups is None else read_labels(groups, ledger.num_examples)
        source = fingerprint(ledger_file)
    given: dict[str, Any] = {"labels": labels, "source": source, "min_group": min_group}
    with bars("Accounting", "examples") as show:
        found = assess(ledger, delta, direction=direction, progress=show, **given)
    with bars("Further deltas", "examples") as show:
        gathered = gather(ledger, found, deltas, progress=show)
    with user_errors():
        outputs.write_all({out: page_writer(gathered, title)})
    if not quiet:
        _echo_written([out])


@main.command(
    "epsilon-of",
    short_help="The epsilon of the worst case, in one line.",
    epilog=example("epsilon-of --noise-multiplier 2 --sample-rate 0.005 --steps 10000 --delta 1e-5"),
)
@options.noise_multiplier
@options.sample_rate
@options.steps
@options.delta
@options.direction
def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float, direction: str) -> None:
    """The epsilon of the worst case, a person clipped at every step, in one line.

    A second line follows if the bounds are not certified on both sides.
    """
    from ..composition import compose
    from ..mechanisms.sampled_gaussian import SampledGaussian
    from ..results import Status
    from ..rounding import rounded_down, rounded_up

    with user_errors():
        composition = compose([(SampledGaussian(noise_multiplier, sample_rate), steps)])
    bounds, renyi = composition.epsilon(delta, direction=direction), composition.rdp_epsilon(delta)
    if bounds.certified:
        answer = f"epsilon <= {rounded_up(bounds.upper, 7)} at delta = {delta:g}"
        lower = f"certified; the true value is at least {rounded_down(bounds.lower, 7)}"
    else:
        answer, lower = f"epsilon at delta = {delta:g} has no upper bound", "not certified"
    click.echo(f"{answer} ({lower}; Renyi accounting: {rounded_up(renyi, 7)})")
    if bounds.status != Status.CERTIFIED:
        click.echo(bounds.status.sentence)


@main.command(
    short_help="PLD, Gaussian and Renyi accounting of every example side by side.",
    epilog=example(
        "compare norms.npy --noise-multiplier 2 --sample-rate 0.005 --max-grad-norm 5 --delta 1e-5",
        "--orientation steps --people 100 --figure three.png",
    ),
)
@options.of_a_log
@click.option("--people", type=click.IntRange(min=1), help="Number of people, drawn at random.  [default: all]")
@click.option(
    "--min-delta",
    type=float,
    callback=options.checked(lambda validate, value: None if value is None else validate.delta(value, "min_delta")),
    help="Least delta at which the Gaussian curve must lie above a person's.  [default: min(1e-10, --delta)]",
)
@click.option("--out", type=FILE, help="A row per example, as .parquet, .csv or .npz.")
@click.option("--figure", type=FILE, help="The three accountings, as .png or .pdf.")
@click.option("--json", "json_file", type=FILE, help="The comparison as JSON; - writes it to standard output, alone.")
def compare(
    norms: Path,
    delta: float,
    direction: str,
    min_delta: float | None,
    min_group: int,
    quiet: bool,
    quantiles: Sequence[float],
    out: Path | None,
    figure: Path | None,
    json_file: Path | None,
    **log: Any,
) -> None:
    """PLD, Gaussian and Renyi accounting of every example side by side; NORMS as in `epsilon`."""
    from ..report import calls, comparison, outputs

    files = (out, figure, None if json_file == STDOUT else json_file)
    _check_files(calls.planned(*files), (norms, log["groups"]))
    with user_errors():
        comparison.check_min_delta(min_delta, delta)
    bars = _bars(quiet)
    read = _read(norms, bars, **log)
    with bars("Comparing", "examples") as show:
        found = comparison.compare(
            read.ledger,
            delta,
            min_delta=min_delta,
            direction=direction,
            labels=read.labels,
            index=read.index,
            parameters=read.facts,
            probabilities=quantiles,
            source=read.source,
            min_group=min_group,
            progress=show,
        )
    writers = calls.result_writers(found, *files)
    with user_errors():
        outputs.write_all(writers)
    _tell(found, read.note, writers, json_file, quiet)


@main.command(
    short_help="The noise, the steps or the sample rate that meet a target epsilon.",
    epilog=example("calibrate --target-epsilon 1 --delta 1e-5 --sample-rate 0.005 --steps 10000"),
)
@options.number("--target-epsilon")
@options.delta
@options.number("--noise-multiplier", required=False)
@options.number("--sample-rate", required=False)
@options.number("--steps", required=False)
@options.direction
def calibrate(
    target_epsilon: float,
    delta: float,
    noise_multiplier: float | None,
    sample_rate: float | None,
    steps: float | None,
    direction: str,
) -> None:
    """The smallest noise multiplier, the most steps or the largest sample rate for a target epsilon, in one line.

    Give two of --noise-multiplier, --sample-rate and --steps; the third is the answer.  It holds for the worst case and
    is rounded to the safe side.
    """
    from .. import calibration
    from ..composition import compose
    from ..mechanisms.sampled_gaussian import SampledGaussian
    from ..rounding import rounded_down, rounded_up

    given = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        raise click.UsageError("give two of --noise-multiplier, --sample-rate and --steps; the third is the answer")
    (wanted,) = missing
    known = {name: value for name, value in given.items() if value is not None}
    function = getattr(calibration, f"calibrate_{wanted}")
    with user_errors():
        found = function(target_epsilon, delta, **known, direction=direction)
    text = {"noise_multiplier": rounded_up, "sample_rate": rounded_down}.get(wanted, lambda n, _: str(n))(found, 7)
    sigma, rate, number = ({**known, wanted: float(text)}[name] for name in given)
    upper = compose([(SampledGaussian(sigma, rate), int(number))]).epsilon(delta, direction).upper
    words = {"noise_multiplier": "noise multiplier", "sample_rate": "sample rate", "steps": "steps"}[wanted]
    click.echo(f"{words} {text}: epsilon <= {rounded_up(upper, 7)} at delta = {delta:g} (certified)")


@main.command(
    "warm-up",
    short_help="Compile all kernels for this machine, once.",
    epilog=example("warm-up"),
)
@options.quiet
def warm_up(quiet: bool) -> None:
    """Compile all kernels for this machine, once, so that no later command or program waits for it.

    The machine code is kept on disk.  Kernels that are there already are not compiled again.
    """
    import time

    from ..warm_up import warm_up as compile_all

    begun = time.monotonic()
    with user_errors(), _bars(quiet)("Compiling", "modules") as show:
        folder = compile_all(show)
    if not quiet:
        click.echo(
            f"All kernels are compiled, in {time.monotonic() - begun:.1f} seconds; the machine code is in {folder}"
        )
