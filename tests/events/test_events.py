"""Event tables: the same counts as a log of norms, for any order, any kind of table and any kind of id."""

import uuid
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import dataset, parquet

from pld_accountant import Ledger
from pld_accountant.events.source import is_events_file
from pld_accountant.events.table import read_events
from pld_accountant.files.formats import ReadError

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.01, "max_grad_norm": 1.0}


def table(people=20, steps=30, seed=0):
    """A log of norms in which half of the norms are 0, and its events in random order."""
    rng = np.random.default_rng(seed)
    norms = rng.gamma(1.0, 0.4, (steps, people)) * (rng.random((steps, people)) < 0.5)
    step, person = np.nonzero(norms)
    order = rng.permutation(step.size)
    return norms, {"person": person[order], "norm": norms[step, person][order], "step": step[order]}


def same(a, b):
    return np.array_equal(a.counts, b.counts) and a.epsilon(1e-5) == b.epsilon(1e-5) and a.schedule == b.schedule


def test_events_count_as_the_log_that_they_come_from():
    norms, events = table()
    ledger = Ledger.from_events(events, people=np.arange(20), **STEP)
    assert same(ledger, Ledger.from_norms(norms, **STEP))
    assert ledger.people.tolist() == list(range(20))


@pytest.mark.parametrize("form", ["arrow", "batch", "pandas", "polars", "file", "folder"])
def test_any_kind_of_table_gives_the_same_ledger(form, tmp_path):
    _, events = table()
    expected = Ledger.from_events(events, **STEP)
    arrow = pyarrow.table(events)
    source = arrow
    if form == "batch":
        source = arrow.to_batches()[0]
    elif form == "pandas":
        source = pandas.DataFrame(events)
    elif form == "polars":
        source = pytest.importorskip("polars").DataFrame(events)
    elif form == "file":
        source = tmp_path / "events.parquet"
        parquet.write_table(arrow, source, row_group_size=100)
    elif form == "folder":
        source = tmp_path / "events"
        wider = arrow.append_column("day", pyarrow.array(np.arange(len(arrow)) % 3))
        parts = dataset.partitioning(pyarrow.schema([("day", pyarrow.int64())]), flavor="hive")
        dataset.write_dataset(wider, source, format="parquet", partitioning=parts)
        assert len(list(source.rglob("*.parquet"))) == 3
        assert is_events_file(source)
    assert same(Ledger.from_events(source, **STEP), expected)


NAMES = {
    "integers": lambda i: int(i) * 7 - 100,
    "texts": lambda i: f"pérson {i}",
    "uuids": lambda i: uuid.UUID(int=int(i) + 10**30),
}


@pytest.mark.parametrize("kind", NAMES)
def test_ids_of_any_kind_come_back_from_the_ledger_and_from_its_file(kind, tmp_path):
    name = NAMES[kind]
    _, events = table()
    named = {**events, "person": np.array([name(i) for i in events["person"]], dtype=object)}
    ledger = Ledger.from_events(pandas.DataFrame(named), **STEP)
    plain = Ledger.from_events(events, **STEP)
    of = {(v if kind == "integers" else str(v)): i for i in range(20) for v in [name(i)]}
    order = np.array([of[one] for one in ledger.people])
    assert np.array_equal(ledger.counts, plain.select(order).counts)
    ledger.save(tmp_path / "ledger.npz")
    again = Ledger.load(tmp_path / "ledger.npz")
    assert np.array_equal(again.people, ledger.people)
    assert again.people.dtype == ledger.people.dtype
    assert again.select(ledger.people[3:5]).people.tolist() == ledger.people[3:5].tolist()


def test_readers_and_data_sets_of_arrow_and_a_table_that_is_not_read_yet(tmp_path):
    _, events = table()
    expected = Ledger.from_events(events, **STEP)
    (tmp_path / "day=1").mkdir()
    whole = pyarrow.table(events)
    parquet.write_table(whole, tmp_path / "day=1" / "x.parquet")
    found = dataset.dataset(tmp_path, partitioning="hive")
    assert same(Ledger.from_events(found, **STEP), expected)
    assert same(Ledger.from_events(whole.to_reader(), **STEP), expected)

    class LazyFrame:
        collect = columns = None

    with pytest.raises(ValueError, match=r"call collect\(\) of the LazyFrame first"):
        Ledger.from_events(LazyFrame(), **STEP)


def test_reading_tells_how_far_it_is_and_reads_the_same(tmp_path):
    _, events = table()
    rows = len(events["person"])
    named = {**events, "group": [f"g{person % 3}" for person in events["person"]]}
    for number, part in enumerate((slice(0, 100), slice(100, None))):
        columns = {name: pyarrow.array(values[part]) for name, values in named.items()}
        columns["group"] = columns["group"].dictionary_encode()
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{number}.parquet")
    seen = []
    found = read_events(tmp_path, **STEP, progress=lambda *done: seen.append(done))
    assert [total for _, total in seen] == [rows] * len(seen) and len(seen) >= 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen) and seen[-1] == (rows, rows)
    plain = read_events(named, **STEP)
    assert np.array_equal(found.norm, plain.norm) and np.array_equal(found.labels, plain.labels)
    assert same(Ledger.from_events(found, max_grad_norm=1.0), Ledger.from_events(plain, max_grad_norm=1.0))


def test_one_step_of_the_schedule_needs_no_other_word():
    events = {"person": ["a", "b"], "norm": [0.5, 1.0], "count": [3, 4]}
    ledger = Ledger.from_events(events, max_grad_norm=1.0, schedule=[(2.0, 0.01, 9), (2.0, 0.01, 1)])
    assert ledger.schedule == ((2.0, 0.01, 10),)
    with pytest.raises(ValueError, match="sample_rate must be given"):
        Ledger.from_events(events, max_grad_norm=1.0, schedule=[(2.0, 0.01, 9), (2.0, 0.02, 9)])


def test_arrow_uuids_and_dictionaries_are_ids():
    raw = [uuid.UUID(int=5), uuid.UUID(int=6)]
    fixed = pyarrow.array([u.bytes for u in raw], type=pyarrow.binary(16))
    coded = pyarrow.array([str(u) for u in raw]).dictionary_encode()
    found = [Ledger.from_events({"person": p, "norm": [1.0, 0.5]}, **STEP).people.tolist() for p in (fixed, coded)]
    assert found[0] == found[1] == [str(u) for u in raw]


def test_records_of_one_person_in_one_step_add_up_before_clipping():
    events = {"person": ["a", "a", "a", "b"], "norm": [0.4, 0.3, 0.9, 0.7], "step": [1, 1, 2, 1]}
    ledger = Ledger.from_events(events, **STEP)
    log = Ledger.from_norms(np.array([[0.7 * (1 + 2**-51), 0.7], [0.9, 0.0]]), **STEP)
    assert same(ledger, log)
    beyond = {"person": ["a", "a"], "norm": [0.8, 0.8], "step": [1, 1]}
    once = Ledger.from_events(beyond, **STEP)
    assert (once.steps, once.counts[0, -1]) == (1, 1)


def test_counts_stand_for_steps_and_the_schedule_is_that_of_the_busiest():
    events = {"person": [1, 2, 1], "norm": [1.0, 0.5, 0.2], "count": [10, 4, 5]}
    ledger = Ledger.from_events(events, **STEP)
    assert ledger.schedule == ((2.0, 0.01, 15),)
    assert ledger.counts.sum(axis=1).tolist() == [15, 4]
    stated = Ledger.from_events(events, schedule=[(2, 0.01, 100)], **STEP)
    assert stated.steps == 100
    with pytest.raises(ValueError, match=r"took 15 steps .* schedule has 14"):
        Ledger.from_events(events, schedule=[(2, 0.01, 14)], **STEP)


def test_each_row_may_have_its_own_noise_and_rate():
    events = {
        "person": [1, 1, 2, 2],
        "norm": [1.0, 0.5, 0.2, 1.0],
        "count": [10, 4, 5, 1],
        "noise_multiplier": [1.0, 8.0, 8.0, 1.0],
        "sample_rate": [0.1, 1.0, 1.0, 0.1],
    }
    ledger = Ledger.from_events(events, max_grad_norm=1)
    by_hand = Ledger(2, noise_multiplier=1, sample_rate=0.1, max_grad_norm=1)
    by_hand.record([1.0, 1.0])
    by_hand.record([1.0, 0.0], repeat=9)
    by_hand.record([0.5, 0.2], repeat=4, noise_multiplier=8, sample_rate=1)
    by_hand.record([0.0, 0.2], noise_multiplier=8, sample_rate=1)
    assert ledger.schedule == ((1.0, 0.1, 10), (8.0, 1.0, 5))
    assert same(ledger, by_hand)


def test_a_part_has_the_same_buckets_as_the_whole():
    events = read_events({**table()[1], "group": table()[1]["person"] % 3}, **STEP)
    whole = Ledger.from_events(events, max_grad_norm=1)
    assert events.labels.tolist() == [p % 3 for p in events.people.to_pylist()]
    for start, stop in pairwise([0, 6, 13, 20]):
        part = Ledger.from_events(events.part(start, stop), max_grad_norm=1)
        assert np.array_equal(part.counts, whole.counts[start:stop])
        assert part.schedule == whole.schedule


BAD = [
    ({"person": [1, None], "norm": [1.0, 1.0]}, "missing ids"),
    ({"person": [1.5, 2.5], "norm": [1.0, 1.0]}, "integers, texts or UUIDs"),
    ({"person": [1, 2], "norm": [1.0, -0.5]}, "row 1"),
    ({"person": [1, 2], "norm": [np.nan, 1.0]}, "row 0"),
    ({"person": [1, 2], "norm": [None, 1.0]}, "1 missing values"),
    ({"person": [1, 2], "norm": ["x", "y"]}, "real numbers"),
    ({"person": [1, 2], "norm": [1.0, 1.0], "count": [1, 0]}, "row 1"),
    ({"person": [1, 2], "norm": [1.0, 1.0], "count": [1.5, 1]}, "row 0"),
    ({"person": [1, 2], "sensitivity": [1.0, 1.5]}, "exceeds max_grad_norm"),
    ({"person": [1, 2], "norm": [1.0, 1.0], "sensitivity": [1.0, 1.0]}, "one of the columns"),
    ({"person": [1, 2]}, "one of the columns"),
    ({"norm": [1.0]}, "no column 'person'"),
    ({"person": [1, 2], "norm": [1.0, 1.0], "step": [1, 2], "count": [1, 1]}, "not both"),
    ({"person": [1, 2], "norm": [1.0, 1.0], "noise_multiplier": [1.0, 2.0]}, "noise_multiplier was given"),
    ({"person": [1, 1], "norm": [1.0, 1.0], "group": [7, 8]}, "has two groups, [78] and [78]"),
    ({"person": [], "norm": []}, "integers|no events"),
    # fifty records of no step would be one record of one step
    ({"person": [1, 1], "norm": [1.0, 1.0], "step": np.array([np.nan, np.nan])}, "step' has 2 missing .* row 0"),
    ({"person": [1, 1], "norm": [1.0, 1.0], "step": np.array([1.0, np.inf])}, "step' has 1 missing .* row 1"),
    ({"person": [1, 1], "norm": [1.0, 1.0], "step": ["a", "NaN"]}, "step' has 1 missing .* row 1"),
    ({"person": [1, 1], "norm": [1.0, 1.0], "step": ["a", " "]}, "step' has 1 missing .* row 1"),
    ({"person": [1, 1], "norm": [1.0, 1.0], "mechanism": ["gaussian", "laplace"]}, "column 'mechanism'"),
]


@pytest.mark.parametrize(("events", "message"), BAD)
def test_bad_events_are_refused_with_the_place(events, message):
    with pytest.raises(ValueError, match=message):
        Ledger.from_events(events, **STEP)


def test_a_step_has_one_noise_multiplier():
    events = {"person": [1, 2], "norm": [1.0, 1.0], "step": ["s", "s"], "noise_multiplier": [1.0, 2.0]}
    with pytest.raises(ValueError, match="the step 's' has several"):
        Ledger.from_events(events, sample_rate=0.1, max_grad_norm=1)


def test_a_schedule_may_be_a_generator_and_zero_has_one_sign():
    events = {"person": [1, 1, 1], "norm": [0.5, 0.5, 0.5], "step": [0.0, -0.0, 1.0]}
    ledger = Ledger.from_events(events, schedule=((s, q, n) for s, q, n in [(2.0, 0.1, 2)]), max_grad_norm=1)
    assert same(ledger, Ledger.from_events({**events, "step": [0, 0, 1]}, schedule=[(2.0, 0.1, 2)], max_grad_norm=1))


def test_strangers_are_refused_and_people_without_events_cost_nothing():
    events = {"person": ["a"], "norm": [1.0]}
    with pytest.raises(ValueError, match="'a'"):
        Ledger.from_events(events, people=["b"], **STEP)
    ledger = Ledger.from_events(events, people=["b", "a"], **STEP)
    assert ledger.people.tolist() == ["a", "b"]
    assert ledger.epsilon(1e-5).upper[1] == 0.0


def test_a_cut_file_is_refused(tmp_path):
    path = tmp_path / "events.parquet"
    parquet.write_table(pyarrow.table(table()[1]), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"events\.parquet cannot be read as Parquet"):
        Ledger.from_events(path, **STEP)


def test_other_column_names_are_given():
    _, events = table()
    renamed = {"user_id": events["person"], "l2": events["norm"], "step": events["step"]}
    ledger = Ledger.from_events(renamed, columns={"person": "user_id", "norm": "l2"}, **STEP)
    assert same(ledger, Ledger.from_events(events, **STEP))


@pytest.mark.parametrize(
    "name", ["Count", "counts", " count", "sampling_rate", "sampleRate", "Noise Multiplier", "sigma"]
)
@pytest.mark.parametrize("of", [dict, pyarrow.table, pandas.DataFrame])
def test_a_misspelt_column_is_not_ignored(name, of):
    """A person's five steps would count as one."""
    with pytest.raises(ReadError, match=f"has a column '{name}' but no"):
        Ledger.from_events(of({"person": [1, 2], "norm": [1.0, 1.0], name: [5, 5]}), **STEP)
    ledger = Ledger.from_events(of({"person": [1, 2], "norm": [1.0, 1.0], "country": [5, 5], "normal": [1, 2]}), **STEP)
    assert ledger.steps == 1


# ------------------------------------------------------------------------------------------- merge, select, add people


def test_parts_of_one_table_merge_into_the_whole():
    whole = Ledger.from_events(table()[1], **STEP)
    parts = [whole.select(whole.people[i::3]) for i in range(3)]
    for part in parts[1:]:
        parts[0].merge(part, same_steps=True)
    assert same(parts[0].select(whole.people), whole)


def test_nobody_is_counted_twice():
    whole = Ledger.from_events(table()[1], **STEP)
    before = whole.counts.copy()
    with pytest.raises(ValueError, match="10 people are in both"):
        whole.merge(whole.select(whole.people[:10]), same_steps=True)
    assert np.array_equal(whole.counts, before)


def test_further_steps_of_other_people_are_matched_by_id():
    first = Ledger.from_events({"person": ["a", "b"], "norm": [1.0, 0.5], "count": [5, 3]}, **STEP)
    later = Ledger.from_events({"person": ["c", "b"], "norm": [0.7, 0.5], "count": [2, 4]}, **STEP)
    first.merge(later)
    assert first.people.tolist() == ["a", "b", "c"]
    assert first.steps == 9
    assert first.counts.sum(axis=1).tolist() == [5, 7, 2]


def test_people_are_added_and_selected():
    ledger = Ledger.from_events({"person": ["a", "b"], "norm": [1.0, 0.5]}, **STEP)
    ledger.add_people(["c"])
    ledger.record([0.0, 0.0, 1.0])
    assert ledger.select(["c", "a"]).counts.sum(axis=1).tolist() == [1, 1]
    for bad in (["a"], ["d", "d"]):
        with pytest.raises(ValueError, match=r"already|twice"):
            ledger.add_people(bad)
    with pytest.raises(ValueError, match="'x' is not in"):
        ledger.select(["x"])
    with pytest.raises(ValueError, match="of one kind"):
        ledger.select([1])


def test_ledgers_with_and_without_ids_do_not_merge():
    named = Ledger.from_events({"person": ["a", "b"], "norm": [1.0, 0.5]}, **STEP)
    with pytest.raises(ValueError, match="has none"):
        named.merge(Ledger(2, **STEP))
    other = Ledger(2, **STEP)
    other.people = ["b", "a"]
    other.record([1.0, 0.0])
    named.merge(other)
    assert named.counts.sum(axis=1).tolist() == [1, 2]
    with pytest.raises(ValueError, match="2 ids, got 3"):
        other.people = [1, 2, 3]


def test_a_dictionary_that_repeats_a_value_is_read_by_its_values():
    """Arrow allows it; its codes are no names of steps, people or groups."""
    twice = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1]), pyarrow.array(["s", "s"]))
    missing = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1]), pyarrow.array(["s", None]))
    plain = {"person": ["a", "a"], "norm": [0.4, 0.4], "step": ["s", "s"], "group": ["g", "g"]}
    expected = Ledger.from_events(plain, **STEP)
    assert expected.steps == 1
    for name in ("step", "person", "group"):
        found = Ledger.from_events(pyarrow.table({**plain, name: twice}), **STEP)
        assert (found.steps, found.num_examples) == (1, 1) and np.array_equal(found.counts, expected.counts)
        with pytest.raises(ValueError, match="missing"):
            Ledger.from_events(pyarrow.table({**plain, name: missing}), **STEP)
    assert read_events(pyarrow.table({**plain, "group": twice}), **STEP).labels.tolist() == ["s"]


CSV = """person,norm,step,group,note
007,0.3,d1,north,
7,0.5,d1,north,"a, b"
ann,0.75,d2,south,x
ann,0.25,d2,south,
"""


def csv_of(folder, text=CSV, encoding="utf-8"):
    path = folder / "events.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_csv_is_a_table_whose_ids_are_texts(tmp_path, encoding):
    path = csv_of(tmp_path, encoding=encoding)
    found = Ledger.from_events(path, **STEP)
    same_table = {
        "person": ["007", "7", "ann", "ann"],
        "norm": [0.3, 0.5, 0.75, 0.25],
        "step": ["d1", "d1", "d2", "d2"],
        "group": ["north", "north", "south", "south"],
    }
    assert found.people.tolist() == ["007", "7", "ann"] and same(found, Ledger.from_events(same_table, **STEP))
    assert read_events(path, **STEP).labels.tolist() == ["north", "north", "south"]
    renamed = csv_of(tmp_path, CSV.replace("person", "patient"))
    assert same(Ledger.from_events(renamed, columns={"person": "patient"}, **STEP), found)
    assert is_events_file(path)
    named = csv_of(tmp_path, CSV.replace("007", '"NA"').replace("north", "null"))
    assert read_events(named, **STEP).labels.tolist() == ["null", "null", "south"]
    assert Ledger.from_events(named, **STEP).people.tolist() == ["7", "NA", "ann"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CSV.replace("person,", "patient,"), "has no column 'person'; it has patient, norm, step, group, note"),
        (CSV.replace("0.75", "much"), "cannot be read as CSV"),
        (CSV.replace("0.75", ""), "the column 'norm' has 1 missing values"),
        (CSV.replace("ann,0.75", ",0.75"), "1 missing ids"),
        (CSV.replace("ann,0.75", "ann ,0.75"), "a space before or behind a text, 'ann '"),
        (CSV.replace(",d1,", ",,"), "the column 'step' has 2 missing values"),
        (CSV.replace("note", "norm"), "two columns 'norm'"),
        (CSV + "bob,0.1\n", "cannot be read as CSV"),
        ("", "has no column 'person'"),
        ("x" * 200_000, "cannot be read as CSV"),
        ("person;norm\na;1\n", "has no column 'person'; it has person;norm"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path, text, said):
    with pytest.raises(ValueError, match=said):
        Ledger.from_events(csv_of(tmp_path, text), **STEP)


def test_decimal_norms_are_taken(tmp_path):
    incomes = [Decimal("0.30"), Decimal("0.70"), Decimal("1.10")]
    table = pyarrow.table({"person": ["a", "b", "a"], "norm": pyarrow.array(incomes, pyarrow.decimal128(12, 2))})
    expected = Ledger.from_events({"person": ["a", "b", "a"], "norm": [0.3, 0.7, 1.1]}, **STEP)
    parquet.write_table(table, tmp_path / "decimal.parquet")
    for source in (table, tmp_path / "decimal.parquet"):
        assert same(Ledger.from_events(source, **STEP), expected)


def test_missing_ids_of_pandas_are_told():
    frame = pandas.DataFrame({"person": pandas.array([1, None, 3], dtype="Int64"), "norm": [0.1, 0.2, 0.3]})
    with pytest.raises(ValueError, match="the column 'person' has 1 missing ids"):
        Ledger.from_events(frame, **STEP)


def test_a_name_of_another_column_of_events_is_told():
    with pytest.raises(ValueError, match="'sensitivity' is the name of another column of events: rename it"):
        Ledger.from_events({"person": [1], "sensitivity": [0.5]}, columns={"norm": "sensitivity"}, **STEP)
