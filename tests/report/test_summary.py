"""The summary tells the same numbers as text and as JSON, and always what is proven."""

import json

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.report.summary import summarise
from pld_accountant.results import Status

UPPER = [0.5, 1.00001, 1.5, 2.5, 4.0]


def test_the_table_gives_upper_bounds_rounded_up(make_individuals):
    lines = summarise(make_individuals(UPPER), (0.0, 0.4, 1.0)).text().splitlines()
    rows = {line[:32].strip(): line[32:].split() for line in lines}
    assert rows["epsilon at delta = 1e-05"] == ["PLD", "Renyi"]
    assert rows["smallest"] == ["0.5000", "0.5501"]  # 0.55 in binary is a little more
    assert rows["40 %"] == ["1.001", "1.101"]
    assert rows["largest"][0] == "4.000"


def test_what_is_proven_is_always_told(make_individuals):
    summary = summarise(make_individuals(UPPER))
    assert "What is proven: What is proven and what is not.\n[Somebody, Theorem 1]" in summary.text()
    assert summary.as_dict()["guarantee"] == {
        "kind": "test",
        "proven_adaptive": False,
        "sentence": "What is proven and what is not.",
        "reference": "Somebody, Theorem 1",
        "promise": None,
    }


def test_text_is_aligned_and_not_wide(make_individuals):
    text = summarise(make_individuals(UPPER, labels=np.array(["a", "bb", "a", "c" * 20, "a"]))).text()
    assert max(map(len, text.splitlines())) <= 110
    table = text[text.index("epsilon at delta") :].split("\n\n")[0].splitlines()
    assert len({len(line) for line in table}) == 1


def test_parameters_are_told_as_they_are():
    ledger = pa.Ledger(3, noise_multiplier=4 / 3, sample_rate=1 / 3000, max_grad_norm=1.0)
    ledger.record([0.0, 0.5, 1.0])
    told = " ".join(pa.summarise(ledger, 1e-5).text().split())
    assert f"noise multiplier {4 / 3!r}, sample rate {1 / 3000!r}" in told


def test_half_the_worst_case(make_individuals):
    summary = summarise(make_individuals(UPPER, labels=np.array([1, 1, 2, 2, 2])))
    assert "3 of 5 people (60.0 %) have less than half the worst case." in summary.text()
    told = summary.as_dict()
    assert told["under_half_the_worst_case"] == {"count": 3, "total": 5, "fraction": 0.6}
    assert [(g["group"], g["under_half_the_worst_case"]["count"]) for g in told["groups"]] == [(1, 2), (2, 1)]


def test_few_people_of_a_group_are_not_counted_below_half_the_worst_case(make_individuals):
    upper, labels = np.r_[np.full(30, 3.0), 0.5, np.full(29, 3.0)], np.repeat([1, 2], 30)
    summary = summarise(make_individuals(upper, labels=labels, min_group=10))
    assert summary.under_half is None and [group.under_half is None for group in summary.groups] == [False, True]
    assert summary.as_dict()["groups"][1]["under_half_the_worst_case"] is None


def test_people_without_a_certificate_are_told_and_never_hidden(make_individuals):
    summary = summarise(make_individuals([1.0, np.inf, np.inf], labels=np.array([0, 0, 1])))
    assert f"Not certified: 2 of 3 people. {Status.NOT_CERTIFIED.sentence}" in " ".join(summary.text().split())
    told = json.loads(json.dumps(summary.as_dict(), allow_nan=False))
    assert told["not_certified"] == 2
    assert told["quantiles"][-1] == {"probability": 1.0, "epsilon": None, "rdp_epsilon": 5.0}
    assert told["groups"][1]["mean"] is None


def test_without_a_certified_worst_case_no_share_is_claimed(make_individuals):
    summary = summarise(make_individuals(UPPER, worst=np.inf, labels=np.arange(5)))
    assert "half the worst case" not in summary.text()
    told = summary.as_dict()
    assert told["under_half_the_worst_case"] is None
    assert told["groups"][0]["under_half_the_worst_case"] is None
    assert told["worst_case"]["upper"] is None


def test_many_groups_are_cut_in_print_but_not_in_json(make_individuals):
    summary = summarise(make_individuals(np.linspace(0.1, 3, 40), labels=np.arange(40)))
    assert "(16 more groups are in the JSON summary)" in summary.text()
    assert len(summary.as_dict()["groups"]) == 40


@pytest.mark.parametrize("labels", [np.array([True, False] * 3), np.array(["x", "y"] * 3), np.arange(6, dtype=np.int8)])
def test_json_takes_any_kind_of_label(make_individuals, labels):
    text = json.dumps(summarise(make_individuals(np.ones(6), labels=labels)).as_dict(), allow_nan=False)
    told = {group["group"]: group["people"] for group in json.loads(text)["groups"]}
    assert told == {label: labels.tolist().count(label) for label in labels.tolist()}


def test_shown_by_itself_it_holds_no_list_of_people():
    """In a notebook or a log, everybody's numbers do not stand by accident."""
    ledger = pa.Ledger.from_events(
        {"person": [f"name{i}" for i in range(30)], "norm": [0.5] * 30},
        noise_multiplier=2.0,
        sample_rate=0.1,
        max_grad_norm=1.0,
    )
    found = pa.summarise(ledger, 1e-5)
    for shown in (repr(found), repr(found.individuals)):
        assert "30 elements" in shown and "name" not in shown and len(shown) < 200
