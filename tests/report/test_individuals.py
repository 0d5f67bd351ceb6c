"""The report shows the ledger's own numbers, and counts the people whose bounds are not certified on both sides."""

import json
from dataclasses import replace

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.report.comparison import compare
from pld_accountant.report.content import gather
from pld_accountant.report.figures import draw_histogram
from pld_accountant.report.html.page import page
from pld_accountant.report.individuals import assess
from pld_accountant.report.summary import summarise
from pld_accountant.results import Method, Status
from pld_accountant.rounding import rounded_up

SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 1.0, "buckets": 16}


@pytest.fixture(scope="module")
def ledger():
    made = pa.Ledger(5, **SETTINGS)
    made.record(np.array([0.0, 0.3, 0.7, 1.0, 9.0]), repeat=20)
    return made


@pytest.fixture(scope="module")
def found(ledger):
    return assess(ledger, 1e-5)


@pytest.fixture
def mixed(found):
    """People 1 and 2 have only the Renyi bound, person 4 has no bound."""
    status = np.array([0, 1, 1, 0, 2], dtype=np.uint8)
    method = np.array([Method.TRANSFORM, Method.RENYI, Method.RENYI, Method.GRID, Method.NONE], dtype=np.uint8)
    upper = np.where(status == 2, np.inf, found.epsilon.upper)
    lower = np.where(status > 0, 0.0, found.epsilon.lower)
    return replace(found, epsilon=pa.Bounds(lower, found.epsilon.estimate, upper, status, method))


@pytest.mark.parametrize("direction", ["both", "add", "remove"])
def test_the_numbers_are_those_of_the_ledger(ledger, direction):
    people, expected = assess(ledger, 1e-5, direction=direction), ledger.epsilon(1e-5, direction=direction)
    for name in ("lower", "estimate", "upper", "status", "method"):
        assert np.array_equal(getattr(people.epsilon, name), getattr(expected, name)), name
    assert np.array_equal(people.rdp_epsilon, ledger.rdp_epsilon(1e-5))
    assert people.worst_case == ledger.worst_case().epsilon(1e-5, direction=direction)


def test_a_proven_bound_counts_as_certified(mixed):
    assert mixed.epsilon.certified.tolist() == [True, True, True, True, False]
    assert (mixed.renyi_only, mixed.not_certified) == (2, 1)


def test_nothing_is_said_if_everybody_is_certified(ledger, found):
    assert (found.renyi_only, found.not_certified) == (0, 0)
    assert replace(found, min_group=1).caveats() == []
    for text in (summarise(found).text(), page(gather(ledger, replace(found, min_group=1)), "")):
        assert "Renyi bound only" not in text and "Not certified" not in text


def test_nothing_is_shown_about_few_people(ledger, found):
    (warning,) = found.caveats()
    assert warning.startswith("There are fewer than 10 people in all, so only the worst case is shown.")
    summary = summarise(found)
    assert " ".join(warning.split()) in " ".join(summary.text().split())
    facts = summary.as_dict()
    assert (facts["quantiles"], facts["under_half_the_worst_case"], facts["min_group"]) == ([], None, 10)
    everything = summary.text() + json.dumps(facts)
    assert rounded_up(found.worst_case.upper) in everything
    assert not any(rounded_up(value) in everything for value in found.epsilon.upper[1:3])
    with pytest.raises(ValueError, match="a page about 5 people, fewer than min_group=10, would show single people"):
        gather(ledger, found)


def test_nothing_is_compared_about_few_people(ledger):
    compared = compare(ledger, 1e-5)
    assert all(one["quantiles"] == [] for one in compared.as_dict()["by"].values())
    assert "over PLD" not in compared.text() and "median" not in compared.text()


def test_text_json_page_and_caption_say_how_many_have_only_the_renyi_bound(ledger, mixed):
    sentences = [
        f"Not certified: 1 of 5 people. {Status.NOT_CERTIFIED.sentence}",
        f"Renyi bound only: 2 of 5 people. {Status.RENYI_ONLY.sentence}",
    ]
    assert mixed.caveats()[:2] == sentences
    summary = summarise(mixed)
    told = json.loads(json.dumps(summary.as_dict(), allow_nan=False))
    assert (told["renyi_only"], told["not_certified"]) == (2, 1)
    for sentence in sentences:
        assert sentence in " ".join(summary.text().split())
        assert sentence in page(gather(ledger, replace(mixed, min_group=1)), "")
    caption = " ".join(draw_histogram(mixed).texts[0].get_text().split())
    assert "2 have only the Renyi bound." in caption
