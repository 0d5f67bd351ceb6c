"""The demonstration, shortened: what it returns is what it writes, and one seed gives one run."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from pld_accountant.demo import digits
from pld_accountant.ledger import Ledger
from pld_accountant.report.outputs import write_all

STEPS = 150


@pytest.fixture(scope="module")
def done():
    return digits.run(seed=1, steps=STEPS)


def test_every_norm_of_every_step_is_kept(done):
    assert done.norms.shape == (STEPS, 1500)
    assert np.all(np.isfinite(done.norms)) and np.all(done.norms > 0)
    assert done.labels.shape == (1500,) and set(done.labels.tolist()) == set(range(10))


def test_the_network_learns(done):
    assert done.train_accuracy > 0.5
    assert done.test_accuracy > 0.5


def test_people_differ_and_nobody_exceeds_the_worst_case(done):
    people = done.individuals
    assert people.not_certified == 0
    assert np.all(people.epsilon.lower <= people.epsilon.upper)
    assert np.all(people.epsilon.lower <= people.worst_case.upper)
    assert people.epsilon.upper.max() <= people.worst_case.upper * (1 + 1e-9)
    assert np.ptp(people.epsilon.upper) > 0.1 * people.worst_case.upper
    assert np.all(people.rdp_epsilon >= people.epsilon.lower)


def test_the_log_read_again_gives_the_same_epsilons(done):
    ledger = Ledger.from_norms(done.norms, **digits.SETTINGS)
    again = ledger.epsilon(digits.DELTA)
    for name in ("lower", "estimate", "upper", "status", "method"):
        assert np.array_equal(getattr(again, name), getattr(done.individuals.epsilon, name)), name


def test_equal_seeds_give_equal_runs(done):
    norms = []
    for seed in (1, 2):
        found = []
        digits.train_digits(seed, 3, lambda step, n, found=found: found.append(n))
        norms.append(np.array(found))
    assert np.array_equal(norms[0], done.norms[:3])
    assert not np.array_equal(norms[0], norms[1])


def test_the_files_hold_what_was_computed(done, tmp_path):
    write_all(digits.outputs(done, tmp_path))
    table = pq.read_table(tmp_path / "epsilon.parquet")
    assert table.num_rows == 1500
    assert np.array_equal(table["epsilon_upper"], done.individuals.epsilon.upper)
    assert np.array_equal(table["group"], done.labels)
    assert np.array_equal(np.load(tmp_path / "norms.npy"), done.norms)
    told = json.loads((tmp_path / "summary.json").read_text())
    assert told["steps"] == STEPS
    assert told["test_accuracy"] == done.test_accuracy
    assert [group["group"] for group in told["groups"]] == list(range(10))
    assert sum(group["people"] for group in told["groups"]) == 1500
    assert (tmp_path / "histogram.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "histogram.pdf").read_bytes().startswith(b"%PDF")


def test_the_report_tells_accuracy_and_groups(done):
    report = digits.report(done)
    assert f"{100 * done.test_accuracy:.1f} % of 297 others" in report
    table = report[report.index("group ") :].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table[2:]] == [str(digit) for digit in range(10)]


def test_labels_belong_to_their_people(done):
    # An 8 resembles other digits, a 0 none; with labels in another order all groups would be alike.
    medians = [np.median(done.individuals.epsilon.upper[done.labels == digit]) for digit in (0, 8)]
    assert medians[1] > 1.2 * medians[0]
