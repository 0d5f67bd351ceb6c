"""Result files are read back as what was written, and nothing else is taken for one."""

import dataclasses
import json
from functools import cache

import numpy as np
import pyarrow as pa_arrow
import pyarrow.parquet as pq
import pytest

import pld_accountant as pa
from pld_accountant.files.formats import ReadError

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 1.0}


@cache
def ledger_of(*people):
    """A ledger that is only asked, and so made once."""
    norms = np.linspace(0.0, 1.5, len(people))
    return pa.Ledger.from_events({"person": list(people), "norm": norms, "count": [40] * len(people)}, **STEP)


def written(found, folder, name="eps.parquet"):
    pa.write_results(found, out=folder / name)
    return folder / name


def same(one, other):
    """Whether two dataclasses hold the same, bit for bit."""
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if dataclasses.is_dataclass(a) and not isinstance(a, pa.Bounds):
            same(a, b)
        elif isinstance(a, pa.Bounds):
            for part in ("lower", "estimate", "upper", "status", "method"):
                assert np.array_equal(getattr(a, part), getattr(b, part), equal_nan=part == "estimate"), field.name
        elif isinstance(a, np.ndarray):
            assert a.tolist() == b.tolist(), field.name
        else:
            assert a == b, field.name


@pytest.mark.parametrize("people", [["zoe", "Ann", "=1+1", "\u00fc"], [7, -3, 2**62, 0]])
@pytest.mark.parametrize("labels", [None, ["x", "y", "x", "y"], [1, 2, 1, 2]])
def test_a_summary_reads_back_bit_for_bit(tmp_path, people, labels):
    found = pa.summarise(ledger_of(*people), 1e-5, labels=labels, probabilities=(0.0, 0.25, 1.0), min_group=1)
    back = pa.read_results(written(found, tmp_path))
    assert back.individuals.people.tolist() == sorted(people)
    same(found.individuals, back.individuals)
    assert back.as_dict() == found.as_dict() and back.text() == found.text()
    again = pa.read_results(written(back, tmp_path, "again.parquet"))
    same(back.individuals, again.individuals)


def test_a_comparison_reads_back(tmp_path):
    found = pa.compare(ledger_of("a", "b", "c"), 1e-5)
    back = pa.read_results(written(found, tmp_path))
    assert np.array_equal(back.mu.upper, found.mu.upper) and np.isnan(back.mu.lower).all()
    assert back.as_dict() == found.as_dict() and back.text() == found.text()


def test_people_without_a_bound_read_back(tmp_path, make_individuals):
    from pld_accountant.report.summary import summarise

    upper = np.array([0.5, np.inf])
    worst = pa.Bounds(0.0, np.nan, np.inf, status=pa.Status.NOT_CERTIFIED, method=pa.Method.NONE)
    people = dataclasses.replace(make_individuals(upper), worst_case=worst, worst_case_rdp=np.inf)
    back = pa.read_results(written(summarise(people), tmp_path)).individuals
    assert back.epsilon.upper.tolist() == upper.tolist()
    assert back.worst_case.upper == np.inf == back.worst_case_rdp
    assert back.worst_case.status == pa.Status.NOT_CERTIFIED


def test_an_infinite_worst_case_reads_back(tmp_path):
    ledger = pa.MechanismLedger(20)
    ledger.record(pa.ApproximateDP(0.1, 1e-3))
    found = pa.summarise(ledger, 1e-5)
    assert found.individuals.worst_case.lower == np.inf
    again = pa.read_results(written(found, tmp_path))
    assert again.individuals.worst_case == found.individuals.worst_case


def test_the_schema_says_what_the_columns_are(tmp_path):
    path = written(pa.summarise(ledger_of("a", "b"), 1e-5, labels=["x", "y"], min_group=1), tmp_path)
    schema = pq.read_schema(path)
    kinds = {field.name: str(field.type) for field in schema}
    word = "dictionary<values=string, indices=int32, ordered=0>"
    epsilons = {f"epsilon_{name}": "double" for name in ("lower", "estimate", "upper")}
    words = {"group": word, "status": word, "method": word}
    assert kinds == {"id": "string", "rdp_epsilon": "double", **epsilons, **words}
    assert schema.field("epsilon_upper").metadata[b"unit"] == b"nats"
    facts = json.loads(schema.metadata[b"pld_accountant"])
    assert facts["schema_version"] == 1 and facts["parameters"]["direction"] == "both"
    assert "Sensitive" in facts["sensitive"] and schema.metadata[b"sensitive"] == b"true"
    assert path.stat().st_mode & 0o077 == 0


def test_texts_need_no_pickle_in_npz(tmp_path):
    path = written(pa.summarise(ledger_of("a", "b"), 1e-5), tmp_path, "eps.npz")
    with np.load(path, allow_pickle=False) as file:
        assert file["id"].tolist() == ["a", "b"]


def test_a_damaged_file_is_refused(tmp_path):
    """Flipped bits are found wherever they lie; Parquet itself reads most of them without a word."""
    path = written(pa.summarise(ledger_of(*(f"person {k}" for k in range(20))), 1e-5), tmp_path)
    whole = path.read_bytes()
    good = pa.read_results(path).individuals
    rng, refused = np.random.default_rng(0), 0
    for place, bit in zip(rng.integers(len(whole), size=400), rng.integers(8, size=400), strict=True):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            read = pa.read_results(path).individuals
        except ReadError:
            refused += 1
        else:
            assert read.epsilon == good.epsilon and read.people.tolist() == good.people.tolist()
            assert read.worst_case == good.worst_case and read.delta == good.delta
    assert refused > 200


def test_a_lower_bound_above_its_upper_bound_is_refused(tmp_path, forge):
    path = written(pa.summarise(ledger_of("a", "b"), 1e-5), tmp_path)
    table = pq.read_table(path)
    place = table.schema.get_field_index("epsilon_lower")
    table = table.set_column(place, table.schema.field(place), [[9.0, 9.0]])
    forge(table, path)
    with pytest.raises(ReadError, match="lower bound exceeds"):
        pa.read_results(path)


def test_other_files_are_refused(tmp_path, forge):
    path = written(pa.summarise(ledger_of("a", "b"), 1e-5), tmp_path)
    whole, table = path.read_bytes(), pq.read_table(path)

    def refused(message, **changes):
        forge(table, path, **changes)
        with pytest.raises(ReadError, match=message):
            pa.read_results(path)

    refused("version 2; this release", schema_version=2)
    refused("2 rows for 3 people", num_examples=3)
    refused("no results that can be read", guarantee=None)
    refused("no results that can be read", schedule="x")
    pq.write_table(table.drop_columns(["status"]), path)
    with pytest.raises(ReadError, match="no results that can be read"):
        pa.read_results(path)
    pq.write_table(pa_arrow.table({"x": [1]}), path)
    with pytest.raises(ReadError, match="no results: its metadata"):
        pa.read_results(path)
    for size in (0, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ReadError, match="cannot be read as Parquet"):
            pa.read_results(path)
    with pytest.raises(FileNotFoundError):
        pa.read_results(tmp_path / "absent.parquet")
