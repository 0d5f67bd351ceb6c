"""Numbers and tables from the files that the benchmarks and figures wrote: none is typed by hand.

- The role ``measured`` shows one number: ``:measured:`people speed.upper.cold .2g``` reads ``people.json``, follows the
  names, and formats what it finds.  A format that ends in ``%`` shows percents.
- The directive ``measured-table`` inserts one of the tables below.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

ROOT = Path(__file__).parents[2]
_FOLDERS = ROOT / "benchmarks" / "results", ROOT / "figures"

Row = list[str]


@cache
def _read(name: str) -> Any:
    for folder in _FOLDERS:
        file = folder / f"{name}.json"
        if file.is_file():
            return json.loads(file.read_text(encoding="utf-8"))
    raise KeyError(f"no results called {name}")


def _steps(row: dict[str, Any]) -> str:
    parts = [f"{count:,} steps, noise {sigma:g}, rate {rate:g}" for sigma, rate, count in row["steps"]]
    return "; ".join(parts)


def _number(value: float | None, digits: int = 7) -> str:
    return "none" if value is None else f"{value:#.{digits}g}".rstrip(".")


def _power(delta: float) -> str:
    return f"{delta:g}"


def _epsilons(rows: list[dict[str, Any]], first: str) -> tuple[Row, list[Row]]:
    names = ["dp-accounting", "dp-accounting 1e-5", "dp-accounting RDP", "prv-accountant 0.01"]
    from pld_accountant.rounding import rounded_down, rounded_up

    header = [first, "this package, lower", "this package, upper", *names]
    body = []
    for row in rows:
        ours = row["answers"]["this package"]
        label = _power(row["delta"]) if first == "delta" else f"{_steps(row)}, delta {_power(row['delta'])}"
        others = []
        for name in names:
            answer = row["answers"].get(name) or {}
            value = answer.get("upper", answer.get("epsilon"))
            others.append(_number(value))
        body.append([label, rounded_down(ours["lower"], 10), rounded_up(ours["upper"], 10), *others])
    return header, body


def tail() -> tuple[Row, list[Row]]:
    """One composition at many deltas."""
    wanted = (1e-2, 1e-5, 1e-8, 1e-10, 1e-12, 1e-14, 1e-15, 1e-20, 1e-30, 1e-50, 1e-100)
    return _epsilons([row for row in _read("accuracy")["tail"] if row["delta"] in wanted], "delta")


def extremes() -> tuple[Row, list[Row]]:
    """Compositions with very little or very much noise."""
    return _epsilons(_read("accuracy")["extremes"], "composition")


def rare() -> tuple[Row, list[Row]]:
    """Compositions in which a few rare steps decide delta."""
    return _epsilons(_read("accuracy")["rare"], "composition")


def people() -> tuple[Row, list[Row]]:
    """Seconds for one person among many."""
    data = _read("people")
    peers, speed = data["peers"], data["speed"]
    body = [
        ["this package, upper bounds", f"{speed['upper']['at_hand'] / speed['people']:.2g}", ""],
        ["this package, all three numbers", f"{speed['all']['at_hand'] / speed['people']:.2g}",
         f"{peers['ours_worst_error']:.1g}"],
    ]  # fmt: skip
    body += [
        [name, f"{found['seconds_per_person']:.2g}", f"{found['worst_error']:.1g}"]
        for name, found in peers.items()
        if isinstance(found, dict)
    ]
    return ["accountant", "seconds for one person", "largest relative error of four people"], body


def filters() -> tuple[Row, list[Row]]:
    """Steps that the filters admit."""
    header = ["norm over clipping norm", "mu", "min_delta", "PLDFilter", "RenyiFilter", "epsilon at delta = 1e-5"]
    body = []
    for row in _read("filters")["steps_admitted"]:
        body.append([
            f"{row['norm']:g}", f"{row['mu']:g}", f"{row['min_delta']:g}", f"{row['pld_filter']:,}",
            f"{row['renyi_filter']:,}", f"{row['epsilon']:.4f}",
        ])  # fmt: skip
    return header, body


def mechanisms() -> tuple[Row, list[Row]]:
    """Errors relative to the middle of this package's bounds, and processor seconds, of each accountant."""
    peers = ["dp-accounting", "dp-accounting RDP", "prv-accountant"]
    header = ["mechanism", "epsilon", "distance of the bounds", "seconds, of a curve", *peers]
    body = []
    for row in _read("mechanisms")["rows"]:
        ours, cells = row["answers"]["this package"], []
        for peer in peers:
            found = row["answers"][peer]
            has = "error" in found
            cell = f"{100.0 * found['error']:+.2g} %, {found['seconds']:.2g} s" if has else "none"
            cells.append(f"{cell}, {found['curve_seconds']:.2g} s" if "curve_seconds" in found else cell)
        width = (ours["upper"] - ours["lower"]) / ours["upper"]
        body.append([f"{row['mechanism']}, {row['steps']:,} steps", f"{ours['upper']:.7g}", f"{width:.0e}",
                     f"{ours['seconds']:.2g}" + (f", {ours['curve_seconds']:.2g}" if "curve_seconds" in ours else ""),
                     *cells])  # fmt: skip
    return header, body


def randomly() -> tuple[Row, list[Row]]:
    """Times of random compositions: milliseconds, and how dp-accounting's answers compare."""
    header = ["compositions", "accountant", "median", "95 %", "slowest", "above 50 ms"]
    body = []
    for name, block in _read("random_compositions").items():
        for row in block["summary"] if isinstance(block, dict) else ():
            times = [f"{1e3 * row[key]:.3g} ms" for key in ("median", "p95", "most")]
            body.append([name, row["accountant"], *times, f"{row['above 50 ms']:.1%}"])
    return header, body


def filtered() -> tuple[Row, list[Row]]:
    """Test accuracy and the share of people who still take part, at one proven epsilon for everybody."""
    looks = _read("filtered_training")["table"][-1]["steps"]
    header = ["clipping norm", "filter", "full-norm steps", *(f"after {step:,}" for step in looks)]
    body = []
    for row in _read("filtered_training")["table"]:
        shown = [f"{a:.2%} ({part:.0%})" for a, part in zip(row["accuracy"], row["taking part"], strict=True)]
        shown += [""] * (len(looks) - len(shown))
        body.append([f"{row['max_grad_norm']:g}", row["filter"], f"{row['full-norm steps']:,}", *shown])
    return header, body


def potential() -> tuple[Row, list[Row]]:
    """Steps that filters for adaptive sampled steps admit, over those of non-adaptive PLD."""
    header = ["noise, rate, delta", "epsilon", "PLD steps", "PotentialFilter", "norm 1/8", "RenyiFilter",
              "norm 1/8", "approximate filter", "seconds"]  # fmt: skip
    body = []
    for row in _read("potential")["cases"]:
        first, last = row["pld"][0], row["pld"][-1]
        shares = [row["potential"][0] / first, row["potential"][-1] / last, row["renyi"][0] / first,
                  row["renyi"][-1] / last, row["approximate"][0] / first]  # fmt: skip
        body.append([
            f"{row['noise_multiplier']:g}, {row['sample_rate']:g}, {row['delta']:g}", f"{row['epsilon']:.5f}",
            f"{first:,}", *(f"{share:.4f}" for share in shares), f"{row['seconds']:.1f}",
        ])  # fmt: skip
    return header, body


def streams() -> tuple[Row, list[Row]]:
    """The same for streams of norms."""
    body = [
        [row["norms"], f"{row['pld']:,}", f"{row['potential'] / row['pld']:.4f}", f"{row['renyi'] / row['pld']:.4f}"]
        for row in _read("potential")["streams"]
    ]
    return ["norms", "PLD steps", "PotentialFilter", "RenyiFilter"], body


def admission() -> tuple[Row, list[Row]]:
    """Milliseconds for one call of ``admit``."""
    rows = [row for row in _read("filters")["rows"] if row["people"] >= 60_000]
    body = []
    for row in rows:
        body.append([row["filter"], f"{row['people']:,}", f"{row['admit']:.2g}"])
    return ["filter", "people", "milliseconds for one call of admit"], body


def growth() -> tuple[Row, list[Row]]:
    """Seconds as people, steps, buckets and delta change."""
    data = _read("people")["growth"]
    base = data["base"]
    body = []
    for what in ("people", "steps", "buckets", "delta"):
        for value, found in data[what].items():
            changed = f"{what} = {float(value):,.0f}" if what != "delta" else f"delta = {float(value):g}"
            body.append([changed, *(f"{found[name]:.2g}" for name in ("upper_cold", "upper", "all"))])
    unless = f"{base['people']:,} people, {base['steps']:,} steps, {base['buckets']} buckets, delta {base['delta']:g}"
    return [f"Unless varied: {unless}", "upper bounds, first time", "upper bounds, again", "all three, again"], body


def first_times() -> tuple[Row, list[Row]]:
    """Seconds of the first answers of a process."""
    data = _read("first_times")
    header = ["people", "process", "counting the norms", "first epsilon", "whole process"]
    states = {
        "empty folder": "first after the install: compiles",
        "second process": "later, tables on disk",
        "without tables": "later, no tables on disk",
    }
    body = []
    for case, people in data["people"].items():
        for state, name in states.items():
            found = data[case][state]
            body.append([
                f"{people:,}", name, *(f"{found[what]['wall']:.2g}" for what in ("count", "epsilon", "process")),
            ])  # fmt: skip
    for state, name in list(states.items())[:2]:
        body.append(["the command epsilon-of", name, "", "", f"{data['epsilon-of'][state]['wall']:.2g}"])
    return header, body


def hard() -> tuple[Row, list[Row]]:
    """Few steps, and far tails."""
    data = dict(_read("people")["hard"])
    data.pop("people")
    header = ["case", "seconds, first time", "largest distance of the bounds, of the worst case's epsilon",
              "median distance, of a person's own epsilon"]  # fmt: skip
    body = [
        [name, f"{found['all_cold']:.2g}", f"{100 * found['widest_of_worst']:.2g} %",
         f"{100 * found['median_relative_width']:.2g} %"]
        for name, found in data.items()
    ]  # fmt: skip
    return header, body


def ledgers() -> tuple[Row, list[Row]]:
    """Rare steps, full batches, Laplace noise, and any mechanisms."""
    header = ["noise, multiplier", "sample rate", "steps", "delta", "people", "seconds, first time", "seconds, again",
              "distance of the bounds, median and largest", "dp-accounting, seconds a person",
              "dp-accounting's epsilon over our upper bound"]  # fmt: skip
    body = [
        [f"{one['noise'].capitalize()}, {one['noise_multiplier']:g}", f"{one['sample_rate']:g}", f"{one['steps']:,}",
         _power(one["delta"]), f"{one['people']:,}", f"{one['cold']:.2g}", f"{one['at_hand']:.2g}",
         f"{100 * one['median_of_worst']:.2g} %, {100 * one['widest_of_worst']:.2g} %",
         _number(one["peer"].get("seconds"), 2),
         _number((peer := one["peer"].get("epsilon")) and peer / one["upper_of_first"], 3)]
        for one in _read("ledgers")["cases"]
    ]  # fmt: skip
    return header, body


def widths() -> tuple[Row, list[Row]]:
    """Distance of the bounds against the number of buckets."""
    data = _read("widths")
    names = ("median", "largest", "over the worst case")
    header = ["buckets", "median, of a person's own epsilon", "largest, of a person's own epsilon",
              "largest, of the worst case's epsilon"]  # fmt: skip
    columns = [[f"{100 * value:.2g} %" for value in data[name]] for name in names]
    return header, [[str(n), *row] for n, *row in zip(data["buckets"], *columns, strict=True)]


def jobs() -> tuple[Row, list[Row]]:
    """From events to results, on one and two workers."""
    names = {
        "one_process": "one process, without Dask",
        "one_worker": "Dask, one worker",
        "two_workers": "Dask, two workers",
        "two_workers_shuffle": "Dask, two workers, events in any order",
        "all": "Dask, two workers",
    }
    header = ["", "people", "seconds", "processor seconds", "people a second", "events a second",
              "most memory of a worker"]  # fmt: skip
    body = []
    for key, label in names.items():
        row = _read("jobs")[key]
        body.append([
            label, f"{row['people']:,}", f"{row['seconds']:,.0f}", _number(row.get("processor_seconds"), 2),
            f"{row['people_per_second']:,.0f}", f"{row['events_per_second']:,.0f}",
            f"{max(row['peak_megabytes']):,} MB",
        ])  # fmt: skip
    return header, body


def jobs_on_paper() -> tuple[Row, list[Row]]:
    """The same for more people than were measured, from the processor's time and the bytes of a person."""
    data = _read("jobs")
    one, two = data["one_process"], data["all"]
    least, most = one["processor_seconds"] / one["people"], 2 * two["seconds"] / two["people"]
    events = data["job"]["events_a_person"] * two["event_bytes"]
    header = ["people", "core hours", "hours on 16 cores", "hours on 256 cores", "events", "results", "partitions"]
    body = []
    for people in (10**7, 10**8, 10**9):
        hours = [people * seconds / 3600 for seconds in (least, most)]
        spans = [" to ".join(f"{value / cores:,.2g}" for value in hours) for cores in (1, 16, 256)]
        body.append([
            f"{people:,}", *spans, f"{people * events / 1e9:,.1f} GB", f"{people * two['result_bytes'] / 1e9:,.1f} GB",
            f"{people / data['job']['people_a_file']:,.0f}",
        ])  # fmt: skip
    return header, body


def storage() -> tuple[Row, list[Row]]:
    """Bytes of a person in a ledger."""
    header = ["norms of a person", "buckets", "of them in use", "bytes", "compressed", "10 million people, compressed"]
    names = {
        "log-normal": "300, log-normal",
        "uniform": "300, spread evenly",
        "log-normal, 30 norms": "30, log-normal",
    }
    body = [
        [names[one["norms"]], str(one["buckets"]), f"{one['used']:.0f}", f"{one['dense']:,.0f}",
         f"{one['compressed']:,.0f}", f"{one['compressed'] / 100:.2f} GB"]
        for one in _read("jobs")["storage"]["lines"]
    ]  # fmt: skip
    return header, body


_COMPOSITIONS = (tail, extremes, rare, randomly, mechanisms, hard, ledgers, widths)
_PEOPLE = (people, filters, filtered, potential, streams, admission, growth, first_times, jobs, jobs_on_paper, storage)
TABLES = {f.__name__: f for f in (*_COMPOSITIONS, *_PEOPLE)}


class MeasuredTable(Directive):
    """One of the tables above, by the name of its function; the options filter nothing."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        header, body = TABLES[self.arguments[0]]()
        lines = [".. list-table::", "   :header-rows: 1", "   :class: measured", ""]
        for row in [header, *body]:
            lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
        node = nodes.Element()
        source = self.state_machine.input_lines.source(self.lineno - self.state_machine.input_offset - 1)
        self.state.nested_parse(StringList(lines, source), self.content_offset, node)
        return node.children


def measured(role: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = None):
    """One number from a file of results."""
    try:
        name, path, *how = text.split(maxsplit=2)
        value: Any = _read(name)
        for part in path.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        shown = how[0] if how else "g"
        if shown.endswith("%"):
            return [nodes.Text(f"{100 * value:{shown[:-1]}} %")], []
        return [nodes.Text(f"{value:{shown}}" if not isinstance(value, str) else value)], []
    except (KeyError, ValueError, IndexError, TypeError) as error:
        message = inliner.reporter.error(f"measured: {text}: {error!r}", line=lineno)
        return [inliner.problematic(rawtext, rawtext, message)], [message]


def setup(app: Any) -> dict[str, bool]:
    app.add_role("measured", measured)
    app.add_directive("measured-table", MeasuredTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
