"""The report shows the numbers it was given, says what they promise, and is one safe page that all can read."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.report.content import gather
from pld_accountant.report.histogram import aligned_histogram
from pld_accountant.report.html.page import page, page_writer
from pld_accountant.report.individuals import assess
from pld_accountant.results import Status
from pld_accountant.rounding import rounded_up

SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 5.0}
PEOPLE = 60


def test_headline_numbers(read, found):
    upper, worst = found.epsilon.upper, found.worst_case.upper
    text = read.text()
    assert f"Worst case {rounded_up(worst)} " in text
    assert f"Median {rounded_up(np.sort(upper)[PEOPLE // 2 - 1])} " in text
    under = int(np.sum(upper < worst / 2))
    assert f"{100 * under / PEOPLE:.1f} % {under} of {PEOPLE} people." in text
    assert "60 people, 30 steps" in text


def test_the_tables_of_the_chart_hold_every_count(read, found):
    for name, values, mark in (
        ("counts-pld", found.epsilon.upper, found.worst_case.upper),
        ("counts-renyi", found.rdp_epsilon, found.worst_case_rdp),
    ):
        top = max(found.epsilon.upper.max(), found.rdp_epsilon.max(), found.worst_case_rdp)
        expected = aligned_histogram(values, mark, top, 50).counts
        assert [int(row[1]) for row in read.tables[name]] == expected[expected > 0].tolist()
        assert sum(int(row[1]) for row in read.tables[name]) == PEOPLE


def test_bars_are_as_high_as_their_counts(ledger, found):
    text = page(gather(ledger, found), "")
    counts = aligned_histogram(found.epsilon.upper, found.worst_case.upper, found.worst_case_rdp, 50).counts
    path = re.search(r'<path class="pld" d="([^"]+)"', text).group(1)
    below = float(re.match(r"M\S+ ([\d.]+)", path).group(1))
    tops = [below - float(v) for v in re.findall(r"V([\d.]+)H", path)]
    drawn = np.array(tops) / max(tops) * counts.max()
    assert np.abs(drawn - counts[counts > 0]).max() < 0.1 / max(tops) * counts.max()  # places have one decimal


def test_large_counts_have_room_beside_the_axis(make_individuals, made_up):
    text = page(made_up(make_individuals(np.full(1_000_000, 0.5))), "")
    ends = {float(x): words for x, words in re.findall(r'<text class="end" x="([\d.]+)" y="[^"]+">([\d,]{7,})<', text)}
    assert "1,000,000" in ends.values()
    assert all(x - 7 * len(words) > 16 for x, words in ends.items())  # digits are 7 wide, the label ends at 16


@pytest.mark.parametrize("worst_rdp", [4.1, 6.0, 7.5, 8.0, 12.0, 50.0])
def test_the_words_at_the_worst_cases_lie_inside_the_chart(make_individuals, worst_rdp, made_up):
    text = page(made_up(replace(make_individuals([0.5, 1.0]), worst_case_rdp=worst_rdp)), "")
    for width, chart in ((760, "wide"), (360, "narrow")):
        inside = text[text.index(f'id="{chart}-desc"') :].split("</svg>")[0]
        marks = re.findall(r'<text class="(end strong|strong)" x="([\d.]+)" y="[^"]+">([^<]+)<', inside)
        assert len(marks) == 2
        for kind, x, words in marks:
            room = float(x) if kind == "end strong" else width - float(x)
            assert room > 6.8 * len(words)  # what a bold letter is wide on average


def test_a_worst_case_far_beyond_everybody_is_told_below_the_chart(make_individuals, made_up):
    near, far = (page(made_up(make_individuals([0.5, 1.0], worst=worst)), "") for worst in (6.0, 20.0))
    assert "Worst case by PLD: 6.000" in near and "beyond the axis" not in near
    assert "Worst case by PLD: 20.00" not in far and "lies beyond the axis: 20.00 by PLD, 4.401 by" in far


def test_nobody_s_bar_reaches_beyond_the_worst_case(found):
    assert found.rdp_epsilon.max() <= found.worst_case_rdp
    assert found.epsilon.upper.max() <= found.worst_case.upper * (1 + 1e-6)


def test_groups(read, found):
    rows = {row[0]: row[1:] for row in read.tables["by-group"]}
    assert list(rows) == ["north", "south", "west"]
    upper = np.sort(found.epsilon.upper[found.labels == "south"])
    assert rows["south"][:3] == ["20", rounded_up(upper[0]), rounded_up(upper[9])]
    assert rows["south"][4] == rounded_up(upper[-1])
    assert read.text().count("20 people") >= 3


def test_who_has_the_largest_and_the_smallest(read, found):
    order = np.argsort(found.epsilon.upper, kind="stable")
    assert [int(row[0]) for row in read.tables["least"]] == order[:10].tolist()
    assert [int(row[0]) for row in read.tables["most"]][:3] == [0, 1, 2]
    assert f"{np.sum(found.epsilon.upper == found.epsilon.upper.max())} people share the first value" in read.text()
    assert "2 people share the first value" in read.text()
    for index, group, low, high, renyi, _ in read.tables["most"] + read.tables["least"]:
        assert group == found.labels[int(index)]
        assert float(low) <= found.epsilon.lower[int(index)] <= found.epsilon.upper[int(index)] <= float(high)
        assert found.rdp_epsilon[int(index)] <= float(renyi)


def test_few_people_are_all_in_one_table(make_individuals, read_page, made_up):
    read = read_page(page(made_up(make_individuals([0.5, 3.0, 1.0])), ""))
    assert [row[0] for row in read.tables["everybody"]] == ["1", "2", "0"]
    assert "most" not in read.tables


def test_epsilon_at_other_deltas(ledger, read):
    rows = read.tables["at-deltas"]
    assert [row[0] for row in rows] == [f"10\N{MINUS SIGN}{power}" for power in (3, 5, 6, 8, 10)]
    deltas = (1e-3, 1e-5, 1e-6, 1e-8, 1e-10)
    # together, as one at a time may round otherwise
    for row, delta, upper in zip(rows, deltas, np.sort(ledger.epsilon(deltas, bounds="upper").upper), strict=True):
        expected = [ledger.worst_case().epsilon(delta).upper, upper[56], upper[29], upper[2]]
        assert row[1:] == [rounded_up(v) for v in [*expected, ledger.worst_case().rdp_epsilon(delta)]]


def test_what_is_promised_is_told(read, ledger):
    text = read.text()
    assert ledger.guarantee.sentence in text and ledger.guarantee.reference in text
    assert "This page is itself sensitive." in text
    assert "a diagnostic, not a guarantee, unless" in text


def test_a_proven_guarantee_is_told_apart_from_the_numbers_of_single_people(make_individuals, read_page, made_up):
    people = make_individuals([1.0, 2.0])
    proven = replace(people, guarantee=replace(people.guarantee, proven_adaptive=True))
    text = read_page(page(made_up(proven), "")).text()
    assert "The guarantee stands below." in text and "Only the worst case is a guarantee" not in text


def test_parameters_and_a_schedule(found, read_page):
    ledger = pa.Ledger(PEOPLE, **SETTINGS)
    ledger.record(np.ones(PEOPLE), repeat=7)
    ledger.record(np.ones(PEOPLE), repeat=5, noise_multiplier=3.0, sample_rate=0.1)
    read = read_page(page(gather(ledger, assess(ledger, 2.5e-7, direction="add")), ""))
    assert read.tables["schedule"] == [["7", "2", "0.05"], ["5", "3", "0.1"]]
    text = read.text()
    for words in ("Clipping norm (max_grad_norm) 5", "one record added Sampling", "Steps 12", "relative norms 256"):
        assert words in text
    assert "2.5 \N{MULTIPLICATION SIGN} 10 \N{MINUS SIGN}7" in text


def test_what_comes_from_outside_is_escaped(ledger, found, read_page):
    evil = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a\x00b\u202ec${title}"]
    people = replace(found, labels=np.array(evil)[np.arange(PEOPLE) % 3])
    text = page(gather(ledger, people), "</title><script>alert(2)</script>$version")
    read = read_page(text)
    assert {tag for tag, _ in read.elements}.isdisjoint({"script", "img", "iframe", "object", "form"})
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    names = [row[0] for row in read.tables["by-group"]]
    assert set(names) == {*evil[:2], "a\ufffdb\ufffdc${title}"}
    assert "</title><script>alert(2)</script>$version" in read.text()
    text.encode()


def test_a_label_that_is_not_text_can_be_written(ledger, found, read_page):
    people = replace(found, labels=np.array(["\ud800", "x"])[np.arange(PEOPLE) % 2])
    file = io.BytesIO()
    page_writer(gather(ledger, people))(file)
    read = read_page(file.getvalue().decode("utf-8"))
    assert sorted(row[0] for row in read.tables["by-group"]) == ["x", "\ufffd"]


def test_long_labels_and_many_groups_are_cut(make_individuals, read_page, made_up):
    many = 500
    labels = np.array([f"{i:04d}" + "x" * 500 for i in range(many)])
    text = page(made_up(make_individuals(np.linspace(0.1, 3, many), labels=labels)), "")
    read = read_page(text)
    assert len(read.tables["by-group"]) == 200
    assert "476 more groups are not in the charts." in read.text()
    assert "300 more groups are not in the table." in read.text()
    assert len(text) < 200_000
    assert "x" * 75 in text and "x" * 80 not in text


def test_the_page_does_not_grow_with_the_people(make_individuals, made_up):
    sizes = [
        len(page(made_up(make_individuals(np.random.default_rng(0).gamma(2.0, 0.5, n).clip(0, 4))), ""))
        for n in (1_000, 100_000)
    ]
    assert sizes[1] < 1.2 * sizes[0] < 60_000


@pytest.mark.parametrize(
    ("upper", "worst"),
    [
        ([0.0, 0.0], 0.0),
        ([0.0, 0.0], 4.0),
        ([1e-9, 2e-9], 2e-9),
        ([300.0] * 30, 300.0),
        ([np.inf, np.inf], np.inf),
        ([1.0, np.inf], 4.0),
        ([1.0], 4.0),
    ],
)
def test_corner_cases(make_individuals, upper, worst, read_page, made_up):
    people = make_individuals(upper, worst=worst, labels=np.zeros(len(upper), dtype=int))
    text = page(made_up(people), "")
    read = read_page(text)
    assert not re.search(r"\b(nan|inf)\b", read.text().replace(Status.NOT_CERTIFIED.sentence, ""))
    drawn = [value for _, attributes in read.elements for value in attributes.values()]
    assert not re.search(r"\b(nan|inf)\b", " ".join(drawn))
    assert ("Not certified" in read.text()) == (not np.all(np.isfinite(upper)))
    for size, chart in (("760 400", "wide"), ("360 330", "narrow")):
        width, height = map(float, size.split())
        inside = text[text.index(f'id="{chart}-desc"') :].split("</svg>")[0]
        places = re.findall(r'<text [^>]*x="([-\d.]+)" y="([-\d.]+)"', inside)
        assert places and all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)


def test_equal_inputs_give_equal_pages(ledger, found):
    assert page(gather(ledger, found), "x") == page(gather(ledger, replace(found)), "x")


def test_bounds_that_are_not_tight_are_counted_below_the_table(ledger, found, read_page):
    cut, whole = gather(ledger, found, seconds=1e-9), gather(ledger, found)
    assert [at.loose for at in whole.at_deltas] == [0] * 5
    assert sum(at.loose > 0 for at in cut.at_deltas) == 4
    for quick, slow in zip(cut.at_deltas, whole.at_deltas, strict=True):
        assert np.all(np.asarray(quick.quantiles.values) >= np.asarray(slow.quantiles.values))
        told = f"At delta = {quick.delta:g}, {quick.loose:,} of {len(found.rdp_epsilon):,} people have no tight bound."
        assert (told in read_page(page(cut, "")).words) == (quick.loose > 0)
