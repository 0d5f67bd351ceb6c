"""Summaries, pictures and pages show nothing about fewer people than the minimum."""

from dataclasses import replace

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.report.content import gather
from pld_accountant.report.figures import draw_comparison, draw_histogram
from pld_accountant.report.histogram import aligned_histogram, shown_histograms
from pld_accountant.report.html.page import page
from pld_accountant.report.summary import summarise

VALUES = np.concatenate([np.random.default_rng(1).uniform(0.5, 1.0, 300), [0.02, 3.0, 3.9]])


@pytest.mark.parametrize("least", [2, 10, 40])
def test_no_bin_shows_few_people_and_nobody_is_lost(least):
    (counted,) = shown_histograms([(VALUES, 4.0)], 4.0, 50, least)
    assert not np.any((counted.counts > 0) & (counted.counts < least))
    assert counted.counts.sum() + counted.hidden == len(VALUES)
    assert counted.counts.sum() > 0.9 * len(VALUES)


def test_a_minimum_of_one_changes_nothing():
    (counted,) = shown_histograms([(VALUES, 4.0)], 4.0, 50, 1)
    plain = aligned_histogram(VALUES, 4.0, 4.0, 50)
    assert np.array_equal(counted.counts, plain.counts) and np.array_equal(counted.edges, plain.edges)
    assert counted.hidden == 0


def test_several_histograms_keep_one_width_of_bins():
    pairs = [(VALUES, 4.0), (np.linspace(0, 5, 40), 5.0)]
    one, other = shown_histograms(pairs, 5.0, 50, 10)
    assert np.isclose(np.diff(one.edges)[-1], np.diff(other.edges)[-1])


def test_a_histogram_of_very_few_people_ends():
    (counted,) = shown_histograms([(np.array([0.1, 0.9]), 1.0)], 1.0, 50, 10)
    assert counted.counts.sum() == 0 and counted.hidden == 2


def test_the_picture_shows_no_bar_of_few_people(make_individuals):
    figure = draw_histogram(make_individuals(VALUES, min_group=10))
    counts = np.concatenate([np.nan_to_num(patch.get_data().values) for patch in figure.axes[0].patches])
    assert not np.any((counts > 0) & (counts < 10))
    words = "Bins of fewer than 10 people are shown empty."
    assert words in " ".join(figure.texts[0].get_text().split())
    assert words not in " ".join(draw_histogram(make_individuals(VALUES)).texts[0].get_text().split())


def test_the_picture_of_a_comparison_shows_no_single_person(ledger):
    found = pa.compare(ledger, 1e-5)
    lower = draw_comparison(found).axes[1]
    assert all(len(line.get_ydata()) < 10 for line in lower.lines)
    single = replace(found, individuals=replace(found.individuals, min_group=1))
    assert max(len(line.get_ydata()) for line in draw_comparison(single).axes[1].lines) > 50


def test_the_page_has_no_row_about_one_person(ledger, found, read_page):
    hidden = read_page(page(gather(ledger, replace(found, min_group=10)), ""))
    assert "Rows about single people are not shown" in hidden.text()
    assert not {"most", "least", "everybody"} & hidden.tables.keys()
    for name in ("counts-pld", "counts-renyi"):
        assert all(int(people.replace(",", "")) >= 10 for _, people in hidden.tables[name])
    shown = read_page(page(gather(ledger, found), ""))
    assert {"most", "least"} <= shown.tables.keys()


def test_groups_of_few_people_are_hidden_and_counted(make_individuals):
    labels = np.array(["a"] * 12 + ["b"] * 3 + ["c"] * 2)
    found = summarise(make_individuals(np.linspace(0.1, 1, 17), labels=labels, min_group=10))
    assert [group.label for group in found.groups] == ["a"] and found.hidden_groups == 2
    assert "2 groups of fewer than 10 people are not shown" in found.text()
    one = summarise(make_individuals(np.linspace(0.1, 1, 17), labels=labels))
    assert len(one.groups) == 3 and "not shown" not in one.text()
