"""The commands that need no data: `demo` and `warm-up`."""

from __future__ import annotations

from pathlib import Path

import click

from . import options
from .options import OUTPUT, STDOUT, example, user_errors
from .running import check_files, finish, progress_bars

__all__ = ["demo", "warm_up"]


@options.command(
    short_help="Train on handwritten digits with DP-SGD and account for every example.",
    epilog=example("demo --steps 100 --out trial"),
)
@click.option("--out", type=OUTPUT, default=Path("demo-output"), show_default=True, help="Folder for the output files.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=1000, show_default=True, help="Steps of training.")
@options.json_file
@options.quiet
def demo(out: Path, seed: int, steps: int, json_file: Path | None, quiet: bool) -> None:
    """Train a small network on handwritten digits with DP-SGD and account for every example."""
    from ..demo import digits
    from ..report.outputs import check_folder, write_all

    with user_errors():
        digits.check_libraries()
        check_folder(next(p for p in (out, *out.absolute().parents) if p.exists()))
    check_files([(json_file, ())], ())
    quiet = quiet or json_file == STDOUT
    say = (lambda text: None) if quiet else click.echo
    say(digits.announcement(steps))
    done = digits.run(seed, steps, progress_bars(quiet))
    say(digits.report(done))
    with user_errors():
        files = digits.outputs(done, out)
        out.mkdir(parents=True, exist_ok=True)
        write_all(files)
    say(f"\nWritten to {out}: {', '.join(path.name for path in files)}")
    finish(digits.facts(done), "", json_file, quiet)


@options.command(
    "warm-up",
    short_help="Compile all kernels for this machine, once.",
    epilog=example("warm-up"),
)
@options.json_file
@options.quiet
def warm_up(json_file: Path | None, quiet: bool) -> None:
    """Compile all kernels for this machine, once, so that no later command or program waits for it.

    The machine code is kept on disk.  Kernels that are there already are not compiled again.  Tables, which depend on
    the noise and the sample rate, are kept when a question first needs them.
    """
    import time

    from ..files.kept import cache_folder
    from ..warm_up import warm_up as compile_all

    check_files([(json_file, ())], ())
    begun = time.monotonic()
    with user_errors(), progress_bars(quiet)("Compiling", "modules") as show:
        folder, compiled = compile_all(show)
    seconds, tables = time.monotonic() - begun, cache_folder()
    where = "not kept" if tables is None else f"kept in {tables}"
    told = f"All kernels are compiled, in {seconds:.1f} seconds" if compiled else "All kernels were compiled before"
    text = f"{told}; the machine code is in {folder}\nTables that a question needs are {where} (PLD_ACCOUNTANT_CACHE)"
    facts = {"seconds": seconds, "folder": str(folder), "tables": None if tables is None else str(tables)}
    finish(facts, text, json_file, quiet)
