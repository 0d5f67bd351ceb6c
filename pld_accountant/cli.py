"""The command ``pld-accountant``.

Exit status 0, or 2 with one line on standard error for a mistake of the user's; anything else is a mistake
of ours and shows its traceback.  Slow libraries are imported by the command that needs them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

__all__ = ["main"]

PROGRAM = "pld-accountant"
_FILE = click.Path(path_type=Path)


class _Program(click.Group):
    """A group of commands whose errors are one line and exit status 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = PROGRAM,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            status = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            if not standalone_mode:
                raise
            click.echo(f"{PROGRAM}: {' '.join(error.format_message().split())}", err=True)
            sys.exit(2)
        except click.Abort:
            if not standalone_mode:
                raise
            click.echo(f"{PROGRAM}: interrupted", err=True)
            sys.exit(130)
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else 0)
        return status


@contextmanager
def _mistakes_of_the_user() -> Iterator[None]:
    """Around reading, checking and writing what the user named: errors become one line."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None and error.strerror else ""
        raise click.ClickException(f"{place}{error.strerror or error}") from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _checked(check: Callable[[Any, Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """An option's callback that applies a check, given as a function of the module `validate` and the
    value."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        from pld_accountant import validate

        try:
            return check(validate, value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def _probabilities(context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    try:
        percents = [float(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"must be numbers and commas, got {value!r}", context, parameter) from error
    if not all(0 <= percent <= 100 for percent in percents):
        raise click.BadParameter(f"must lie between 0 and 100, got {value!r}", context, parameter)
    return tuple(percent / 100 for percent in percents)


def _number(name: str, check: Callable[[Any, Any], Any], text: str) -> Callable[[Any], Any]:
    """A required option that holds a checked number."""
    return click.option(name, type=float, required=True, callback=_checked(check), help=text)


noise_multiplier = _number(
    "--noise-multiplier",
    lambda validate, value: validate.noise_multiplier(value),
    "Noise standard deviation divided by the clipping norm.",
)
sample_rate = _number(
    "--sample-rate",
    lambda validate, value: validate.sample_rate(value),
    "Probability with which an example is in a batch (Poisson sampling).",
)
max_grad_norm = _number(
    "--max-grad-norm",
    lambda validate, value: validate.positive(value, "max_grad_norm"),
    "The clipping norm.",
)
steps = _number(
    "--steps",
    lambda validate, value: validate.count(value, "steps", least=1),
    "Steps of training.",
)
delta = _number(
    "--delta",
    lambda validate, value: validate.delta(value),
    "The delta at which epsilon is asked for.",
)
direction = click.option(
    "--direction",
    type=click.Choice(["both", "remove", "add"]),
    default="both",
    show_default=True,
    help="Neighbouring data sets by removing or adding one record; both is the larger epsilon.",
)


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="individual-pld-accountant", prog_name=PROGRAM)
def main() -> None:
    """Every person's own privacy loss, from gradient norms, certified."""


@main.command(short_help="Train on handwritten digits with DP-SGD and account for every example.")
@click.option("--out", type=_FILE, default=Path("demo-output"), show_default=True, help="Folder for what is written.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=1000, show_default=True, help="Steps of training.")
def demo(out: Path, seed: int, steps: int) -> None:
    """Train a small network on handwritten digits with DP-SGD and account for every example."""
    from pld_accountant import demo as demonstration
    from pld_accountant.outputs import check_folder, write_all
    from pld_accountant.progress import progress_bar

    with _mistakes_of_the_user():
        demonstration.check_libraries()
        check_folder(next(p for p in (out, *out.absolute().parents) if p.exists()))
    click.echo(demonstration.announcement(steps))
    done = demonstration.run(seed, steps, progress_bar)
    click.echo(demonstration.report(done))
    with _mistakes_of_the_user():
        files = demonstration.outputs(done, out)
        out.mkdir(parents=True, exist_ok=True)
        write_all(files)
    click.echo(f"\nWritten to {out}: {', '.join(path.name for path in files)}")


@main.command(short_help="The epsilon of every example in a log of gradient norms.")
@click.argument("norms", type=_FILE)
@noise_multiplier
@sample_rate
@max_grad_norm
@delta
@direction
@click.option(
    "--orientation",
    type=click.Choice(["steps-by-examples", "examples-by-steps"]),
    help="What rows and columns of NORMS are.  [default: what the file states, else steps-by-examples]",
)
@click.option("--dataset", help="Name of the array inside .npz, .zarr or .h5, or of the list column of .parquet.")
@click.option(
    "--buckets",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="How finely noise ratios are told apart.",
)
@click.option("--groups", type=_FILE, help="A label per example: .npy, .csv or .txt.")
@click.option(
    "--quantiles",
    default="0,10,25,50,75,90,100",
    show_default=True,
    callback=_probabilities,
    help="Quantiles of the summary, in percent.",
)
@click.option("--out", type=_FILE, help="A row per example, as .parquet, .csv or .npz.")
@click.option("--figure", type=_FILE, help="The histogram, as .png or .pdf.")
@click.option("--json", "json_file", type=_FILE, help="The summary as JSON.")
def epsilon(norms: Path, json_file: Path | None, out: Path | None, figure: Path | None, **options: Any) -> None:
    """The epsilon of every example in a log of gradient norms.

    NORMS holds the norm of every example's gradient at every step, before clipping and whether the example
    was sampled or not: .npy, .npz, .parquet, .zarr or .h5, a row per step and a column per example.
    """
    from pld_accountant import outputs

    with _mistakes_of_the_user():
        wanted = ((out, outputs.TABLE_ENDINGS), (figure, outputs.FIGURE_ENDINGS), (json_file, ()))
        inputs = [path for path in (norms, options["groups"]) if path is not None]
        outputs.check([(path, endings) for path, endings in wanted if path is not None], inputs=inputs)
    summary = _account(norms, **options)
    writers = _writers(summary, out, figure, json_file)
    with _mistakes_of_the_user():
        outputs.write_all(writers)
    click.echo(summary.text())
    if writers:
        click.echo(f"\nWritten: {', '.join(str(path) for path in writers)}")


def _account(
    norms: Path,
    *,
    delta: float,
    direction: str,
    orientation: str | None,
    dataset: str | None,
    groups: Path | None,
    quantiles: Sequence[float],
    **parameters: Any,
) -> Any:
    """Read the log and the labels, ask for every epsilon, and summarise."""
    from pld_accountant.individuals import assess
    from pld_accountant.labels import read_labels
    from pld_accountant.ledger import Ledger
    from pld_accountant.progress import progress_bar
    from pld_accountant.readers import open_norms
    from pld_accountant.summary import summarise

    with _mistakes_of_the_user(), open_norms(norms, orientation=orientation, dataset=dataset) as log:
        labels = None if groups is None else read_labels(groups, log.shape[1])
        with progress_bar("Reading", "steps") as report:
            ledger = Ledger.from_norms(log, **parameters, progress=report)
        facts = {**parameters, "norms": norms.name, "orientation": log.orientation}
    with progress_bar("Accounting", "examples") as report:
        found = assess(ledger, delta, direction=direction, labels=labels, parameters=facts, progress=report)
    return summarise(found, quantiles)


def _writers(summary: Any, out: Path | None, figure: Path | None, json_file: Path | None) -> dict[Path, Any]:
    """What writes each file that was asked for."""
    from pld_accountant.outputs import json_writer, table_writer

    facts, writers = summary.as_dict(), {}
    if out is not None:
        writers[out] = table_writer(summary.individuals, out.suffix.lower(), facts)
    if figure is not None:
        from pld_accountant.pictures import draw_histogram, write_figure

        drawn, ending = draw_histogram(summary.individuals), figure.suffix.lower()
        writers[figure] = lambda file: write_figure(drawn, file, ending)
    if json_file is not None:
        writers[json_file] = json_writer(facts)
    return writers


@main.command("epsilon-of", short_help="The epsilon of the worst case, in one line.")
@noise_multiplier
@sample_rate
@steps
@delta
@direction
def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float, direction: str) -> None:
    """The epsilon of the worst case, a person clipped at every step, in one line."""
    import pld_accountant as pa
    from pld_accountant.numerals import rounded_down, rounded_up

    composition = pa.compose([(pa.SampledGaussian(noise_multiplier, sample_rate), steps)])
    bounds, renyi = composition.epsilon(delta, direction=direction), composition.rdp_epsilon(delta)
    if bounds.certified:
        answer = f"epsilon <= {rounded_up(bounds.upper, 7)} at delta = {delta:g}"
        lower = f"certified; the true value is at least {rounded_down(bounds.lower, 7)}"
    else:
        answer, lower = f"epsilon at delta = {delta:g}: {bounds.status.sentence}", "not certified"
    click.echo(f"{answer} ({lower}; Renyi accounting: {rounded_up(renyi, 7)})")
