"""The command ``pld-accountant``.

The exit status is 0; 1 if `verify` finds a difference; 2 with one line on standard error for a user error; 130 if it
was interrupted.  Any other error is a bug and shows its traceback, with exit status 1.  Each command imports the slow
libraries that it needs.
"""

from __future__ import annotations

import warnings
from typing import TextIO

import click

from . import individuals, ledgers, machine, publishing, worst_case
from .options import PROGRAM, Program

__all__ = ["main"]


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="individual-pld-accountant", prog_name=PROGRAM)
@click.pass_context
def main(context: click.Context) -> None:
    """Every person's own privacy loss, from gradient norms, certified."""
    context.with_resource(warnings.catch_warnings())
    warnings.showwarning = _noted


def _noted(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning in one line on standard error, without the place in the program where it arose."""
    click.echo(f"{PROGRAM}: note: {message}", err=True)


for command in (
    machine.demo,
    individuals.epsilon,
    individuals.report,
    worst_case.epsilon_of,
    worst_case.compose,
    individuals.compare,
    ledgers.record,
    ledgers.merge,
    ledgers.verify,
    ledgers.describe,
    publishing.release,
    worst_case.calibrate,
    machine.warm_up,
):
    main.add_command(command)
