"""A function of a partition: the same numbers as a ledger, for any kind of table, in any blocks, and after a pickle."""

import pickle
import re
import threading
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import parquet

import pld_accountant as pa
from pld_accountant import partitions
from pld_accountant.kernels import _jit
from pld_accountant.results import Method, Status

SCHEDULE = [(2.0, 0.01, 3000)]
JOB = pa.PartitionJob(1e-5, 1.0, SCHEDULE)


def events(people=100, each=6, seed=0, first=0):
    rng = np.random.default_rng(seed)
    person = rng.permutation(np.repeat(np.arange(first, first + people), each))
    return {"person": person, "norm": rng.gamma(1.0, 0.4, person.size), "count": rng.integers(1, 400, person.size)}


def ledger(table):
    return pa.Ledger.from_events(table, max_grad_norm=1.0, noise_multiplier=2.0, sample_rate=0.01, schedule=SCHEDULE)


def bounds(table):
    """The bounds in a table of results."""
    frame = table if isinstance(table, pandas.DataFrame) else table.to_pandas()
    numbers = [frame[f"epsilon_{name}"].to_numpy() for name in ("lower", "estimate", "upper")]
    codes = [np.array([kind[n] for n in frame[c]]) for c, kind in (("status", Status), ("method", Method))]
    return pa.Bounds(*numbers, *codes)


def same(a, b):
    """Equal but for what fuller tables change."""
    return np.allclose(a.upper, b.upper, rtol=1e-6, atol=0.0) and np.all((a.lower <= b.upper) & (b.lower <= a.upper))


def test_a_partition_has_the_numbers_of_its_ledger():
    table = events()
    found = JOB(table)
    own = ledger(table)
    assert same(bounds(found), own.epsilon(1e-5))
    assert found["id"].to_pylist() == own.people.tolist()
    assert np.array_equal(found["rdp_epsilon"].to_numpy(), own.rdp_epsilon(1e-5))


def test_laplace_noise():
    table = events(people=20)
    gaussian = bounds(pa.PartitionJob(1e-5, 1.0, [(2.0, 0.01, 3000)], buckets=16)(table))
    found = pa.PartitionJob(1e-5, 1.0, [(2.0, 0.01, 3000)], buckets=16, noise="laplace")(table)
    parameters = {"noise_multiplier": 2.0, "sample_rate": 0.01, "max_grad_norm": 1.0}
    own = pa.LaplaceLedger.from_events(table, **parameters, schedule=SCHEDULE, buckets=16)
    assert same(bounds(found), own.epsilon(1e-5))
    assert not same(bounds(found), gaussian)
    assert b'"noise": "laplace"' in found.schema.metadata[b"pld_accountant"]
    with pytest.raises(ValueError, match="noise must be 'gaussian' or 'laplace', got 'uniform'"):
        pa.PartitionJob(1e-5, 1.0, SCHEDULE, noise="uniform")


@pytest.mark.parametrize("form", [pyarrow.table, pandas.DataFrame, dict])
def test_any_table_in_and_the_same_kind_out(form):
    found = JOB(form(events()))
    assert isinstance(found, pandas.DataFrame if form is pandas.DataFrame else pyarrow.Table)
    assert same(bounds(found), bounds(JOB(events())))


def test_a_job_survives_a_pickle_and_a_second_call_with_fuller_tables_differs_by_less_than_the_bounds():
    table = events()
    again = pickle.loads(pickle.dumps(JOB))
    assert again == JOB
    first = bounds(again(table))
    again(events(seed=1))  # fills the shared tables
    second = bounds(JOB(table))
    assert np.all(first.lower <= second.upper) and np.all(second.lower <= first.upper)
    assert np.abs(first.upper - second.upper).max() < 1e-3 * first.width.max()


def test_people_are_solved_in_blocks_with_the_schedule_of_all(monkeypatch):
    table = events(people=2500)
    whole = JOB(table)
    monkeypatch.setattr(partitions, "_BLOCK_BYTES", 1)
    blocks = JOB(table)
    assert blocks["id"].equals(whole["id"])
    a, b = bounds(whole), bounds(blocks)
    assert np.all(a.lower <= b.upper) and np.all(b.lower <= a.upper)
    assert np.abs(a.upper - b.upper).max() <= a.width.max()


def test_tables_of_other_buckets_are_not_used():
    table = events()
    JOB(table)
    for other in (
        pa.PartitionJob(1e-5, 1.0, [(3.0, 0.01, 3000)]),
        pa.PartitionJob(1e-5, 1.0, SCHEDULE, buckets=16),
        pa.PartitionJob(1e-5, 1.0, [(2.0, 0.02, 3000)]),
    ):
        sigma, rate, _ = other.schedule[0]
        own = pa.Ledger.from_events(
            table,
            max_grad_norm=1.0,
            noise_multiplier=sigma,
            sample_rate=rate,
            schedule=other.schedule,
            buckets=other.buckets,
        )
        assert same(bounds(other(table)), own.epsilon(1e-5))


def test_noise_comes_from_the_column_if_there_is_one():
    table = {**events(), "noise_multiplier": np.full(600, 2.0)}
    assert same(bounds(JOB(table)), bounds(JOB(events())))
    two = pa.PartitionJob(1e-5, 1.0, [*SCHEDULE, (3.0, 0.01, 10)])
    with pytest.raises(ValueError, match="noise_multiplier must be given"):
        two(events())
    assert np.all(bounds(two(table)).lower <= bounds(JOB(table)).upper)


def test_groups_columns_and_texts():
    table = events(people=40)
    names = [f"p{i:03d}" for i in table["person"]]
    groups = np.where(table["person"] % 2, "odd", "even")
    job = pa.PartitionJob(1e-5, 1.0, SCHEDULE, columns={"person": "user"})
    frame = pandas.DataFrame({"user": names, "norm": table["norm"], "count": table["count"], "group": groups})
    found = job(frame)
    assert found["id"].tolist() == [f"p{i:03d}" for i in range(40)]
    assert found["group"].tolist() == ["even", "odd"] * 20
    assert same(bounds(found), bounds(JOB(table)))
    assert pickle.loads(pickle.dumps(job)) == job


def test_nobody_gives_an_empty_table_with_the_same_columns():
    full = JOB(events(people=3))
    table = pyarrow.table(events(people=3))
    empty = JOB(table.slice(0, 0))
    assert empty.num_rows == 0
    assert empty.schema.equals(full.schema)
    assert list(JOB(pandas.DataFrame(events(people=3)).iloc[:0]).columns) == full.column_names


def test_a_partition_in_batches_is_joined_before_it_is_counted():
    """As Spark calls the function of ``mapInPandas``: an iterator of frames, in which people are torn apart."""
    frame = pandas.DataFrame(events())
    batches = (frame.iloc[i : i + 97] for i in range(0, len(frame), 97))
    (found,) = JOB.in_batches(batches)
    assert same(bounds(found), bounds(JOB(events())))
    assert {str(found[name].dtype) for name in ("status", "method")} <= {"str", "object"}
    assert list(JOB.in_batches(iter([]))) == list(JOB.in_batches(iter([frame.iloc[:0]]))) == []


def test_the_schema_in_the_guide_is_that_of_the_frame():
    guide = (Path(__file__).parent.parent / "docs" / "guides" / "jobs.rst").read_text(encoding="utf-8")
    lines = re.search(r"schema = \((.*?)\n   \)", guide, re.S)[1]
    stated = dict(field.split() for field in "".join(re.findall(r'"(.*?)"', lines)).split(", "))
    (found,) = JOB.in_batches([pandas.DataFrame(events(people=5))])
    arrow = {name: str(pyarrow.Schema.from_pandas(found).field(name).type) for name in found.columns}
    kinds = {"int64": "bigint", "double": "double", "string": "string", "large_string": "string"}
    assert list(stated) == list(found.columns)
    assert stated == {name: kinds[kind] for name, kind in arrow.items()}


def test_a_written_part_is_a_result_file(tmp_path):
    people = JOB.write(events(), tmp_path / "part.parquet")
    found = pa.read_results(tmp_path / "part.parquet")
    assert people == found.individuals.num_examples == 100
    assert same(found.individuals.epsilon, bounds(JOB(events())))
    assert found.individuals.schedule == tuple(SCHEDULE) and not found.individuals.schedule_from_events
    assert (tmp_path / "part.parquet").stat().st_mode & 0o777 == 0o600
    assert (
        parquet.read_schema(tmp_path / "part.parquet").remove_metadata().equals(JOB(events()).schema.remove_metadata())
    )
    assert JOB.write(pyarrow.table(events()).slice(0, 0), tmp_path / "none.parquet") == 0
    assert not (tmp_path / "none.parquet").exists()


def test_a_call_works_in_one_thread(monkeypatch):
    started = []
    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self), begin(self)))
    monkeypatch.setattr(_jit, "thread_limit", lambda: 4)
    table = events(people=2_000, each=2)
    JOB(table)
    assert not started
    ledger(table).epsilon(1e-5)
    assert started


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 2.0}, "delta"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"schedule": []}, "schedule"),
        ({"schedule": [(2.0, 0.01, 0)]}, "steps"),
        ({"direction": "up"}, "direction"),
        ({"buckets": 1}, "buckets"),
    ],
)
def test_bad_parameters_are_refused_at_once(change, message):
    with pytest.raises(ValueError, match=message):
        pa.PartitionJob(**{"delta": 1e-5, "max_grad_norm": 1.0, "schedule": SCHEDULE, **change})


def test_more_steps_than_the_schedule_are_refused():
    with pytest.raises(ValueError, match="but the schedule has 5"):
        pa.PartitionJob(1e-5, 1.0, [(2.0, 0.01, 5)])(events())
