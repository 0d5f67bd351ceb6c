"""What a file holds: `described`; and ledgers from files of ledgers and from journals of training runs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import PROGRAM

if TYPE_CHECKING:
    from ..report.individuals import AnyLedger

__all__ = ["as_text", "described", "holds_ledger", "load_ledger"]

_OF_RESULTS = ("delta", "num_examples", "steps", "parameters", "schedule", "worst_case", "not_certified", "renyi_only")
_OF_RELEASE = ("delta", "cost", "noise", "edges", "guarantee", "provenance")


def holds_ledger(path: Path) -> bool:
    """Whether a file is that of a ledger or a journal, as far as its beginning says."""
    from ..training.journal import is_journal

    return path.is_file() and (is_journal(path) or _kind_of_ledger(path) is not None)


def _kind_of_ledger(path: Path) -> type[AnyLedger] | None:
    """The class of the ledger in a file; None if it holds something else."""
    from ..laplace_ledger import LaplaceLedger
    from ..ledger import Ledger
    from ..ledger_file import KIND, LAPLACE_KIND
    from ..mechanism_ledger import MechanismLedger

    header = _header(path) if _is_ours(path) else {}
    if header.get("class") == MechanismLedger.__name__:
        return MechanismLedger
    kinds: dict[str, type[AnyLedger]] = {KIND: Ledger, LAPLACE_KIND: LaplaceLedger}
    return kinds.get(header.get("kind", ""))


def load_ledger(path: Path) -> AnyLedger:
    """The ledger of a file, or of the whole steps of a journal; what a crash cut off is told on standard error."""
    from ..ledger import Ledger
    from ..training.journal import is_journal, ledger_of

    if path.suffix.lower() == ".parquet" and path.is_file() and _facts_in_schema(path) is not None:
        raise ValueError(f"{path} holds results; a ledger is what --ledger of `epsilon` and --out of `record` write")
    if not (path.is_file() and is_journal(path)):
        return ((path.is_file() and _kind_of_ledger(path)) or Ledger).load(path)
    ledger, message = ledger_of(path)
    if message:
        click.echo(f"{PROGRAM}: note: {message}", err=True)
    return ledger


def described(path: Path) -> dict[str, Any]:
    """The kind of a file or folder and its parameters; no person's number."""
    from ..events.source import arrow_events, is_events_file
    from ..files.formats import OPENERS, ReadError
    from ..files.norm_log import open_norms
    from ..files.store import refuse_invalid
    from ..report.folder import MANIFEST
    from ..report.outputs import companion
    from ..training.journal import is_journal

    ending = path.suffix.lower()
    if (path / MANIFEST).exists():
        return _of_folder(path)
    if path.is_file():
        if is_journal(path):
            return _of_journal(path)
        if zipfile.is_zipfile(path):
            if _is_ours(path):
                header = _header(path)
                if header.get("class") == "MechanismLedger":
                    return _of_mechanisms(path)
                with refuse_invalid(path, PROGRAM):
                    return _of_state(header)
            if (facts := _facts_in_arrays(path)) is not None:
                return _results(facts)
        if ending == ".json":
            return _of_json(path)
        if ending == ".csv" and (beside := companion(path)) is not None and beside.is_file():
            return _of_json(beside)
        if ending == ".parquet" and (facts := _facts_in_schema(path)) is not None:
            return _results(facts)
    if is_events_file(path):
        table = arrow_events(path)
        return {"kind": "event table", "events": table.num_rows, "columns": table.schema.names}
    if path.is_file() and ending not in OPENERS:
        raise ReadError(f"{path} is none of the files that {PROGRAM} reads or writes")
    with open_norms(path, orientation=None, dataset=None, people=None) as log:
        return {
            "kind": "log of norms",
            "steps": log.shape[0],
            "people": log.shape[1],
            "orientation": f"{log.orientation} ({'assumed' if log.assumed else 'stated'})",
        }


def as_text(facts: Mapping[str, Any]) -> str:
    """A line for each fact."""
    return "\n".join(f"{name.replace('_', ' ')}: {_short(value)}" for name, value in facts.items())


def _is_ours(path: Path) -> bool:
    """Whether a file is a container of `files.store`."""
    from ..files.store import refuse_invalid

    if not zipfile.is_zipfile(path):
        return False
    with refuse_invalid(path, "zip"), zipfile.ZipFile(path) as archive:
        return {"header.npy", "sha256.npy"} <= set(archive.namelist())


def _header(path: Path) -> dict[str, Any]:
    from ..files import store

    return store.header(path)


def _of_state(header: dict[str, Any]) -> dict[str, Any]:
    from ..report.summary import schedule_facts

    found = {"kind": header.pop("kind"), "version": header.pop("version"), **header}
    if "schedule" in found:
        found.pop("groups", None)
        found["steps"] = sum(steps for _, _, steps in found["schedule"])
        found["schedule"] = schedule_facts(found["schedule"])
    return found


def _of_mechanisms(path: Path) -> dict[str, Any]:
    from ..report.summary import schedule_facts

    ledger = load_ledger(path)
    return {
        "kind": "ledger of mechanisms",
        "num_examples": ledger.num_examples,
        **ledger.run_parameters,
        "steps": ledger.steps,
        "schedule": schedule_facts(ledger.schedule),
    }


def _of_journal(path: Path) -> dict[str, Any]:
    from ..report.summary import schedule_facts
    from ..training.journal import ledger_of

    ledger, message = ledger_of(path)
    return {
        "kind": "journal of a training run",
        "num_examples": ledger.num_examples,
        "steps": ledger.steps,
        "max_grad_norm": ledger.max_grad_norm,
        "schedule": schedule_facts(ledger.schedule),
        **({"note": message} if message else {}),
    }


def _of_folder(path: Path) -> dict[str, Any]:
    from ..report.folder import ResultFolder

    found = ResultFolder(path).manifest() or {}
    return {
        "kind": "results in parts",
        "complete": bool(found.get("complete")),
        **{name: found[name] for name in ("num_examples", "job", "source") if name in found},
        **({"parts": len(found["parts"])} if "parts" in found else {}),
    }


def _of_json(path: Path) -> dict[str, Any]:
    from ..files.formats import ReadError

    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        facts["provenance"]["package"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReadError(f"{path} is no JSON of {PROGRAM}") from error
    return _results(facts)


def _facts_in_schema(path: Path) -> dict[str, Any] | None:
    from ..files.formats import ReadError, require
    from ..files.store import refuse_invalid

    try:
        schema = require("pyarrow.parquet", "parquet", f"reading {path}").read_schema(path)
    except Exception as error:  # Arrow has many kinds of errors
        raise ReadError(f"{path} cannot be read as Parquet: {error}") from error
    text = (schema.metadata or {}).get(b"pld_accountant")
    with refuse_invalid(path, "results"):
        return None if text is None else dict(json.loads(text))


def _facts_in_arrays(path: Path) -> dict[str, Any] | None:
    """The summary in a table that was written as .npz, uncompressed."""
    from ..files.npy import read_npy
    from ..files.store import refuse_invalid

    with refuse_invalid(path, "results"), zipfile.ZipFile(path) as archive:
        if "summary.npy" not in archive.namelist():
            return None
        member = archive.getinfo("summary.npy")
        if member.file_size > path.stat().st_size:
            raise ValueError("its summary is larger than the file")
        with archive.open(member) as file:
            return dict(json.loads(str(read_npy(file, member.file_size))))


def _results(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a release, of results, or of the worst case; JSON that says its kind stays as it is."""
    if "kind" in facts:
        return dict(facts)
    if "cost" in facts:
        return {"kind": "release", **{name: facts[name] for name in _OF_RELEASE if name in facts}}
    if "num_examples" not in facts:
        return {"kind": "worst case", **facts}
    names = (*_OF_RESULTS, "guarantee", "provenance")
    return {"kind": "results", **{name: facts[name] for name in names if name in facts}}


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_short(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "; ".join(_short(one) for one in value)
    return str(value)
