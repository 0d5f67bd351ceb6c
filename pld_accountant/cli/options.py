"""Options of the commands with their checks, and the reporting of user errors."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import click

from .. import validate

__all__ = [
    "FILE",
    "INPUT",
    "OUTPUT",
    "PROGRAM",
    "STDOUT",
    "Command",
    "OfSteps",
    "Program",
    "checked",
    "command",
    "delta",
    "direction",
    "example",
    "groups",
    "json_file",
    "log_of_norms",
    "min_group",
    "noise_multiplier",
    "number",
    "numbers",
    "of_a_log",
    "of_the_worst_case",
    "pairs",
    "quiet",
    "sample_rate",
    "schedule",
    "seconds",
    "steps",
    "user_errors",
]

PROGRAM = "pld-accountant"
FILE = click.Path(path_type=Path)
STDOUT = Path("-")  # as the name of a file


class _Output(click.Path):
    """A file to write that cannot be standard output."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.Path`."""
        if str(value) == str(STDOUT):
            self.fail("- is no file; only --json writes to standard output", param, ctx)
        return super().convert(value, param, ctx)


class _Input(click.Path):
    """A file to read, which must have a size and an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.Path`."""
        if Path(value).is_fifo():
            self.fail(f"{value} is a pipe; write its contents to a file first", param, ctx)
        return super().convert(value, param, ctx)


OUTPUT, INPUT = _Output(path_type=Path), _Input(path_type=Path)


def example(*lines: str) -> str:
    """The end of a command's help: one worked example."""
    return "\b\nExample:\n  " + " \\\n    ".join([f"{PROGRAM} {lines[0]}", *lines[1:]])


class OfSteps(click.Option):
    """An option that a log of norms needs, and that an event table or a ledger may hold instead."""


def _read_parameters(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """A callback of ``--parameters``: the values of the file become the defaults of the command's options."""
    if path is None:
        return
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    with user_errors():
        text = path.read_text(encoding="utf-8")
        try:
            given = tomllib.loads(text)
        except ValueError as error:
            raise click.ClickException(f"{path} is no TOML: {error}") from error
    own = _options(context.command)
    everybody = _options(*getattr(context.parent and context.parent.command, "commands", {}).values()) | own
    defaults = {}
    for name, value in given.items():
        option = name.replace("_", "-")
        if option not in everybody:
            raise click.ClickException(f"{path}: no command has an option --{option}")
        if isinstance(value, dict):
            raise click.ClickException(f"{path}: {name} must be a value, not a table")
        if option in own:
            defaults[own[option]] = ",".join(map(str, value)) if isinstance(value, list) else value
    context.default_map = defaults


def _options(*commands: click.Command) -> dict[str, str]:
    """The names of the parameters of these commands by their options, without the leading hyphens."""
    found = [(o, p.name) for c in commands for p in c.params if isinstance(p, click.Option) for o in p.opts]
    return {o[2:]: name for o, name in found if name and o.startswith("--")}


class Command(click.Command):
    """A command that reads its options from a TOML file too, and that names all missing options at once."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        words = "Values of options as TOML; options on the command line win."
        of_file = {"type": FILE, "is_eager": True, "expose_value": False, "callback": _read_parameters, "help": words}
        self.params.append(click.Option(["--parameters"], **of_file))  # type: ignore[arg-type]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, as `click.Command` does."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            found, _, _ = self.make_parser(ctx).parse_args(given)
            # an option that was not given has no entry, an argument one that is no text
            needed = [p for p in self.params if p.required or isinstance(p, OfSteps)]
            missing = [p for p in needed if not isinstance(found.get(p.name or ""), str)]
            missing = [p for p in missing if p.name not in (ctx.default_map or {})]
            words = [f"{p.param_type_name} {p.get_error_hint(ctx)}" for p in missing]
            raise click.UsageError(f"Missing {', '.join(words)}.", ctx) from None


command = partial(click.command, cls=Command)


class Program(click.Group):
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
            print(end="", flush=True)  # there may be no standard output
        except OSError as error:
            if not standalone_mode:
                raise
            # what Python still holds of the output would fail again when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno == errno.EPIPE:
                sys.exit(1)
            click.echo(f"{PROGRAM}: standard output: {error.strerror or error}", err=True)
            sys.exit(2)
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
            # the process ends: to look through all of numba's objects for cycles would take a tenth of a second
            gc.freeze()
            sys.exit(status if isinstance(status, int) else 0)
        return status


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn `OSError` and `ValueError` into an error message of one line."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None and error.strerror else ""
        raise click.ClickException(f"{place}{error.strerror or error}") from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error


Callback = Callable[[click.Context, click.Parameter, Any], Any]


def checked(check: Callable[[Any], Any]) -> Callback:
    """A callback of an option that applies a check; None stays None."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def _probability(percent: float) -> float:
    if not 0 <= percent <= 100:
        raise ValueError(f"must lie between 0 and 100, got {percent:g}")
    return percent / 100


def numbers(check: Callable[[float], float]) -> Callback:
    """A callback of an option for numbers separated by commas, each checked as in `checked`."""

    def each(value: str) -> tuple[float, ...]:
        try:
            parts = [float(part) for part in value.split(",")]
        except ValueError:
            raise ValueError(f"must be numbers and commas, got {value!r}") from None
        return tuple(check(part) for part in parts)

    return checked(each)


@checked
def pairs(value: str) -> dict[str, str]:
    """A callback of an option for pairs ``name=value`` separated by commas; None stays None."""
    parts = [part.partition("=") for part in value.split(",")]
    if not all(name and middle and other for name, middle, other in parts):
        raise ValueError(f"must be pairs NAME=COLUMN and commas, got {value!r}")
    return {name.strip(): other.strip() for name, _, other in parts}


@checked
def schedule(value: str) -> tuple[tuple[float, float, int], ...]:
    """A callback of an option for groups ``noise:rate:steps`` separated by commas; None stays None."""
    try:
        groups = [[float(number) for number in part.split(":")] for part in value.split(",")]
        return tuple(validate.schedule(groups))
    except ValueError as error:
        told = f"must be NOISE:RATE:STEPS, with commas between several groups, got {value!r}: {error}"
        raise ValueError(told) from error


class _Rate(click.ParamType):
    """A number, or a fraction such as 256/60000."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType`."""
        try:
            return float(Fraction(value)) if isinstance(value, str) and "/" in value else float(value)
        except (ValueError, ZeroDivisionError, OverflowError):
            self.fail(f"{value!r} is not a number, nor a fraction such as 256/60000.", param, ctx)


_NUMBERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "--noise-multiplier": (validate.noise_multiplier, "Noise standard deviation divided by the clipping norm."),
    "--sample-rate": (
        validate.sample_rate,
        "Probability that an example is in a batch (Poisson sampling); also a fraction, such as 256/60000.",
    ),
    "--max-grad-norm": (partial(validate.positive, name="max_grad_norm"), "The clipping norm."),
    "--steps": (partial(validate.count, name="steps", least=1), "Steps of training."),
    "--delta": (validate.delta, "The delta at which epsilon is computed."),
    "--target-epsilon": (partial(validate.positive, name="target_epsilon"), "The epsilon that must not be exceeded."),
    "--seconds": (
        partial(validate.positive, name="seconds"),
        "A limit of time: what is not proven by then is wider, and says so.",
    ),
    "--epsilon": (partial(validate.positive, name="epsilon"), "The epsilon that the release may cost everybody."),
    "--rho": (partial(validate.positive, name="rho"), "The same in zero-concentrated DP, instead of --epsilon."),
    "--min-delta": (
        partial(validate.delta, name="min_delta"),
        "Least delta at which the Gaussian curve must lie above a person's.  [default: min(1e-10, --delta)]",
    ),
}


def number(name: str, *, required: bool = True, cls: type[click.Option] = click.Option) -> Callable[[Any], Any]:
    """An option that holds a checked number; None if it is optional and absent."""
    check, text = _NUMBERS[name]
    kind = _Rate() if name == "--sample-rate" else float
    return click.option(name, cls=cls, type=kind, required=required, callback=checked(check), help=text)


noise_multiplier, sample_rate = number("--noise-multiplier"), number("--sample-rate")
steps, delta, seconds = number("--steps"), number("--delta"), number("--seconds", required=False)
direction = click.option(
    "--direction",
    type=click.Choice(["both", "remove", "add"]),
    default="both",
    show_default=True,
    help="Neighbouring data sets: one record removed or added; both gives the larger epsilon.",
)
min_group = click.option(
    "--min-group",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Show nothing about fewer people than this in summaries, pictures and pages.",
)
quiet = click.option("--quiet", is_flag=True, help="Print no summary and no progress.")
json_file = click.option(
    "--json", "json_file", type=FILE, help="The answer as JSON; - writes it to standard output, alone."
)
groups = click.option(
    "--groups",
    type=INPUT,
    help="A label per example: .npy, .txt or a .csv of one column in the order of the people; or .csv or .parquet with "
    "the columns id (or person) and group.",
)

_LOG_OF_NORMS = (
    click.argument("norms", type=INPUT),
    click.option(
        "--noise",
        type=click.Choice(["gaussian", "laplace"]),
        help="The noise of the steps.  With laplace, norms are L1 norms, and --noise-multiplier is the scale of the "
        "noise divided by the clipping norm.  [default: gaussian]",
    ),
    number("--noise-multiplier", required=False, cls=OfSteps),
    number("--sample-rate", required=False, cls=OfSteps),
    number("--max-grad-norm", required=False, cls=OfSteps),
    click.option(
        "--schedule",
        callback=schedule,
        metavar="NOISE:RATE:STEPS",
        help="The steps of somebody who takes part in every step of an event table, with commas between several "
        "groups; nobody may have taken more.  [default: the most steps that one person took]",
    ),
    click.option(
        "--orientation",
        type=click.Choice(["steps", "people", "steps-by-examples", "examples-by-steps"]),
        metavar="[steps|people]",
        help="The meaning of a row of NORMS.  [default: as stated in the file; else steps, but .parquet must state it]",
    ),
    click.option("--examples", type=click.IntRange(min=1), help="Number of people in NORMS; any other is an error."),
    click.option("--dataset", help="Name of the array inside .npz, .zarr or .h5, or of the list column of .parquet."),
    click.option(
        "--buckets",
        type=click.IntRange(min=2, max=4096),
        help="Buckets of relative norms; more give tighter bounds.  [default: 256]",
    ),
    click.option(
        "--columns",
        callback=pairs,
        metavar="NAME=COLUMN",
        help="Columns of an event table under other names, for example person=user_id,norm=size.",
    ),
)
_QUESTION = (
    delta,
    direction,
    groups,
    min_group,
    seconds,
    quiet,
    click.option(
        "--quantiles",
        default="0,10,25,50,75,90,100",
        show_default=True,
        callback=numbers(_probability),
        help="Quantiles of the summary, in percent.",
    ),
)


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator for several options, in this order."""

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


# for a command that reads a log of norms, one that computes epsilons of a log, and one on the worst case
log_of_norms = _together(*_LOG_OF_NORMS)
of_a_log = _together(*_LOG_OF_NORMS, *_QUESTION)
of_the_worst_case = _together(delta, direction, seconds, json_file, quiet)
