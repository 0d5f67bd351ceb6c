"""Arguments that make no sense: one clear error at the door, and nothing booked."""

import numpy as np
import pandas
import pytest

import pld_accountant as pa
from pld_accountant.notions import tradeoff
from pld_accountant.partitions import PartitionJob
from pld_accountant.training.individual import IndividualSteps

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.01, "max_grad_norm": 1.0}
EVENTS = {"person": ["a"], "norm": [0.5]}


def ledger(people=12):
    made = pa.Ledger(people, **STEP)
    made.record(np.linspace(0.0, 1.0, people), repeat=7)
    return made


def gaussian(**more):
    return pa.GaussianFilter(0.5, num_examples=3, noise_multiplier=2.0, max_grad_norm=1.0, **more)


CASES = {
    "text as steps": (lambda: pa.compose(""), "steps must be a list of pairs"),
    "mapping as steps": (lambda: pa.compose({}), "steps must be a list of pairs"),
    "one share": (lambda: gaussian(shares=1.0), "shares must have shape"),
    "one number as target": (lambda: gaussian(target=1.0), "target must be a pair"),
    "underflowing rate": (
        lambda: pa.PotentialFilter(1.0, 1e-5, num_examples=3, **{**STEP, "sample_rate": 1e-320}),
        "sample_rate must be at least 1e-12",
    ),
    "one step as schedule": (
        lambda: pa.Ledger.from_events(EVENTS, max_grad_norm=1.0, schedule=(2.0, 0.1, 100)),
        "schedule must be a list of",
    ),
    "one step as a job's schedule": (lambda: PartitionJob(1e-5, 1.0, (2.0, 0.1, 100)), "schedule must be a list of"),
    "text as columns": (lambda: PartitionJob(1e-5, 1.0, [(2.0, 0.1, 100)], columns="x"), "columns must map names"),
    "misspelt column": (
        lambda: PartitionJob(1e-5, 1.0, [(2.0, 0.1, 100)], columns={"peron": "x"}),
        "columns must name some of",
    ),
    "text as deltas": (lambda: pa.write_report(ledger(), "r.html", 1e-5, deltas="1e-6"), "deltas must be"),
    "text as min_delta": (lambda: pa.compare(ledger(), 1e-5, min_delta="x"), "min_delta must be a number"),
    "contradiction": (lambda: pa.summarise(ledger(), 1e-5, parameters={"buckets": 9}), "must not contradict"),
    "huge probability": (lambda: pa.summarise(ledger(), 1e-5, probabilities=10**400), "probabilities must be"),
    "text as function": (lambda: pa.calibrate("abc", 1.0, 1e-5, between=(1.0, 2.0)), "make must be a function"),
    "path as journal": (lambda: IndividualSteps(3, **STEP, journal="run.journal"), "journal must be a Journal"),
    "text as filter": (lambda: IndividualSteps(3, **STEP, keep="x"), "keep must be a Filter"),
    "text as epsilon": (lambda: tradeoff.tradeoff_of_dp(0.1, "1", 0), "epsilon must be a number"),
    "missing norms": (lambda: ledger().record(pandas.NA), "norms must be real numbers"),
    "missing direction": (lambda: ledger().epsilon(1e-5, pandas.NA), "direction must be"),
    "empty path": (lambda: ledger().save(""), "path must not be empty"),
    "seed as generator": (lambda: pa.LinearQueries(1.0, 0.1, num_examples=3, rng=5), "rng must be a numpy"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_one_clear_error(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, said = CASES[case]
    with pytest.raises(ValueError, match=said):
        call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"rng": 4}, {"learning_rate": "x"}, {"gradient": None}])
def test_a_descent_that_cannot_run_spends_nothing(wrong):
    keep = gaussian()
    given = {"gradient": lambda p: np.ones((3, 1)), "learning_rate": 0.1, **wrong}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        pa.descend(given.pop("gradient"), [0.0], keep, steps=3, **given)
    assert np.all(keep.spent() == 0.0)


def test_arrays_of_no_dimension_are_numbers(tmp_path):
    one = pa.GaussianOdometer(
        np.array(0.5), num_examples=np.array(3), noise_multiplier=np.array(2.0), max_grad_norm=1.0
    )
    one.save(tmp_path / "state")
    assert pa.GaussianOdometer.load(tmp_path / "state").parameters == one.parameters


def test_summaries_and_comparisons_are_equal_to_themselves_only():
    one, other = (pa.summarise(ledger(), 1e-5) for _ in range(2))
    assert one == one and one != other  # noqa: PLR0124
    assert (one.individuals == other.individuals) is False


def test_a_composition_is_made_by_compose():
    with pytest.raises(TypeError):
        pa.Composition([(pa.Gaussian(1.0), 1)])


def test_columns_of_a_parquet_whose_numbers_do_not_ascend(tmp_path):
    from pyarrow import parquet, table

    from pld_accountant.files.formats import ReadError
    from pld_accountant.files.norm_log import open_norms

    parquet.write_table(table({"1": [0.5], "0": [0.25]}), tmp_path / "log.parquet")
    with pytest.raises(ReadError, match="their numbers do not ascend"):
        open_norms(tmp_path / "log.parquet", orientation="steps")
    parquet.write_table(table({"0": [0.25], "1": [0.5]}), tmp_path / "log.parquet")
    with open_norms(tmp_path / "log.parquet", orientation="steps") as log:
        assert log[0:1].tolist() == [[0.25, 0.5]]


def test_who_never_lost_anything_has_a_renyi_epsilon_of_0():
    assert ledger().rdp_epsilon(1e-100)[0] == 0.0 < ledger().rdp_epsilon(1e-100)[1]


def test_reprs_say_what_an_object_is(tmp_path):
    from pld_accountant.training.journal import Journal

    with Journal(tmp_path / "log", 3, max_grad_norm=1.0) as journal:
        assert "3, max_grad_norm=1.0; 0 steps" in repr(journal)
    assert repr(IndividualSteps(3, **STEP)).startswith("IndividualSteps(3, sample_rate=0.01")
    assert repr(pa.LinearQueries(1.0, 0.1, num_examples=3)) == "LinearQueries(1.0, 0.1, num_examples=3)"
