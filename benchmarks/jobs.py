"""From tables of events to everybody's epsilon: one process, and one and two Dask workers; writes jobs.json.

Run from the repository's root: ``python benchmarks/jobs.py [--people 10000000] [--some 1000000] [--folder FOLDER]``.
The folder needs about 8 bytes an event, twice as much during the shuffle.  Every measurement begins with new processes,
whose tables and kernels are not loaded yet.  The results file keeps the fastest run of each kind so far.

The norms of a person are those of `people.py`: log-normal, a tenth of the people always clipped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "jobs.json"
STEPS, EVENTS, FILE_PEOPLE = 10_000, 30, 100_000
JOB = {"delta": 1e-5, "max_grad_norm": 1.0, "schedule": [(2.0, 0.005, STEPS)]}


def person_file(path: Path, first: int, people: int, *, mixed_among: int = 0) -> None:
    """A Parquet file with the events of some people; of `mixed_among` people in random order if that is given."""
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(first)
    if mixed_among:
        # a permutation of all people's events, taken in stretches: nobody's events are together
        place = (np.arange(first * EVENTS, (first + people) * EVENTS) * 982_451_653) % (mixed_among * EVENTS)
        person = place % mixed_among
    else:
        person = np.repeat(np.arange(first, first + people), EVENTS)
    # what belongs to a person is a function of the id, so that both kinds of files hold the same kind of people
    own = np.random.default_rng(0).normal(-1.0, 0.8, 4096)[person % 4096]
    norm = np.exp(own + rng.normal(0.0, 0.35, person.size))
    norm[person % 10 == 0] = 2.0
    table = pyarrow.table({
        "person": person,
        "norm": norm.astype(np.float32),
        "count": np.full(person.size, STEPS // EVENTS, dtype=np.int32),
    })  # fmt: skip
    parquet.write_table(table, path, compression="zstd")


def make_events(folder: Path, people: int, *, mixed: bool = False) -> None:
    """All files of a folder, if it is not there."""
    if folder.exists():
        return
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for first in range(0, people, FILE_PEOPLE):
        some = min(FILE_PEOPLE, people - first)
        person_file(part / f"events-{first:010d}.parquet", first, some, mixed_among=people if mixed else 0)
    part.rename(folder)


def one_process(question: dict) -> dict:
    """All files after another, without Dask."""
    import pld_accountant as pa

    job = pa.PartitionJob(**JOB)
    out = Path(question["out"])
    out.mkdir()
    start, people = time.perf_counter(), 0
    for number, path in enumerate(sorted(Path(question["events"]).iterdir())):
        people += job.write(path, out / f"part-{number}.parquet")
    seconds = time.perf_counter() - start
    peak, processor = usage_of_process()
    return {"people": people, "seconds": seconds, "processor_seconds": processor, "peak_megabytes": [peak]}


def storage(people: int = 100_000, norms: int = 300) -> dict:
    """Bytes a person of ledgers in memory and on disk, for people with so many distinct norms."""
    import pld_accountant as pa

    rng = np.random.default_rng(0)
    scale = np.exp(rng.normal(-1.0, 0.8, people))
    kinds = {
        "log-normal": np.exp(rng.normal(0.0, 0.35, (norms, people))) * scale,
        "uniform": rng.random((norms, people)),
        "log-normal, 30 norms": np.exp(rng.normal(0.0, 0.35, (30, people))) * scale,
    }
    kinds["log-normal"][:, ::10] = 2.0
    found = []
    for name, log in kinds.items():
        for buckets in (256, 128, 64):
            ledger = pa.Ledger.from_norms(
                log, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=1.0, buckets=buckets
            )
            line = {"norms": name, "buckets": buckets, "used": float((ledger.counts > 0).sum() / people)}
            line["dense"] = ledger.nbytes / people
            start = time.perf_counter()
            ledger.compress()
            line["compress_microseconds"] = 1e6 * (time.perf_counter() - start) / people
            line["compressed"] = ledger.nbytes / people
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "ledger.npz")
                ledger.save(path)
                line["file"] = path.stat().st_size / people
            found.append(line)
            print(
                f"{name:>22}, {buckets:>3} buckets: {line['used']:5.1f} used, {line['dense']:,.0f} bytes a person, "
                f"compressed {line['compressed']:,.0f}, file {line['file']:,.0f}, 10 million people "
                f"{line['compressed'] / 100:.2f} GB"
            )
    return {"people": people, "lines": found}


def usage_of_process() -> tuple[int, float]:
    """Peak megabytes and processor seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_maxrss // 1024, used.ru_utime + used.ru_stime


def on_dask(question: dict) -> dict:
    """The same on a cluster of processes with one thread each."""
    import distributed

    import pld_accountant as pa
    from pld_accountant.dask import write_epsilons

    marks: list[float] = []
    with (
        distributed.LocalCluster(
            n_workers=question["workers"], threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        start = time.perf_counter()
        write_epsilons(
            pa.PartitionJob(**JOB),
            question["events"],
            question["out"],
            partitioned=not question["mixed"],
            progress=lambda done, total: marks.append(time.perf_counter() - start),
        )
        seconds = time.perf_counter() - start
        usage = list(client.run(usage_of_process).values())
    manifest = json.loads((Path(question["out"]) / "_manifest.json").read_text())
    return {
        "people": manifest["num_examples"],
        "seconds": seconds,
        "seconds_to_first_part": marks[0],
        "seconds_after_last_part": seconds - marks[-1],
        "partitions": len(marks),
        "peak_megabytes": [peak for peak, _ in usage],
        "processor_seconds": sum(processor for _, processor in usage),
    }


def measure(name: str, folder: Path, people: int, **question: Any) -> dict:
    """A worker's answer, in a process of its own."""
    mixed = bool(question.get("mixed"))
    events = folder / f"{'mixed' if mixed else 'events'}-{people}"
    make_events(events, people, mixed=mixed)
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    asked = {**question, "mixed": mixed, "events": str(events), "out": str(out)}
    command = [sys.executable, __file__, "--worker", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    found["people_per_second"] = found["people"] / found["seconds"]
    found["events_per_second"] = found["people_per_second"] * EVENTS
    found["event_bytes"] = sum(p.stat().st_size for p in events.iterdir()) / (found["people"] * EVENTS)
    found["result_bytes"] = sum(p.stat().st_size for p in out.glob("part-*.parquet")) / found["people"]
    shutil.rmtree(out)
    print(
        f"{name:>34}: {found['people']:>11,} people in {found['seconds']:7.1f} s: "
        f"{found['people_per_second']:8,.0f} people/s, {found['events_per_second']:11,.0f} events/s, "
        f"peak {max(found['peak_megabytes']):,} MB"
    )
    return found


def better(before: dict, now: dict) -> dict:
    """The faster run of two, with the fewest processor seconds: others may use the machine at the same time."""
    if before.get("people") != now["people"]:
        return now
    spent = [one["processor_seconds"] for one in (before, now) if "processor_seconds" in one]
    return {**min(before, now, key=lambda one: one["seconds"]), "processor_seconds": min(spent)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10_000_000)
    parser.add_argument("--some", type=int, default=1_000_000, help="people of the comparison of one and two workers")
    parser.add_argument("--folder", type=Path, default=Path("jobs-benchmark"))
    parser.add_argument("--kinds", default="", help="some of the measurements, by name; by default all")
    parser.add_argument("--worker")
    arguments = parser.parse_args()
    if arguments.worker:
        question = json.loads(arguments.worker)
        print(json.dumps(on_dask(question) if question["workers"] else one_process(question)))
        return
    folder, some = arguments.folder, arguments.some
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version()},
        "job": {**JOB, "events_a_person": EVENTS, "people_a_file": FILE_PEOPLE},
    }
    kinds = {
        "one_process": (some, {"workers": 0}),
        "one_worker": (some, {"workers": 1}),
        "two_workers": (some, {"workers": 2}),
        "two_workers_shuffle": (some, {"workers": 2, "mixed": True}),
        "all": (arguments.people, {"workers": 2}),
    }
    wanted = [name for name in arguments.kinds.split(",") if name] or ["storage", *kinds]
    if "storage" in wanted:
        results["storage"] = storage()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for name, (people, question) in kinds.items():
        if name not in wanted:
            continue
        results[name] = better(results.get(name, {}), measure(name, folder, people, **question))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
