"""The report shows the numbers it was given, says what they promise, and is one safe page that all can read."""

import io
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from click.testing import CliRunner

import pld_accountant as pa
from pld_accountant.cli.commands import main
from pld_accountant.report.content import AtDelta, Extremes, Report, gather
from pld_accountant.report.histogram import Quantiles, aligned_histogram
from pld_accountant.report.html.markup import escaped, table
from pld_accountant.report.html.page import page, page_writer
from pld_accountant.report.individuals import assess
from pld_accountant.report.rounding import rounded_up
from pld_accountant.report.summary import summarise
from pld_accountant.results import Status

SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 5.0}
PEOPLE, STEPS = 60, 30
VOID = {"meta", "link", "rect", "path", "br"}


class Page(HTMLParser):
    """Elements, ids, tables and words; unbalanced tags are an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.ids, self.words, self.tables = [], [], [], [], {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "caption":
            self.rows = self.tables[attributes["id"]] = []
        if tag == "tr" and "thead" not in self.open:
            self.rows.append([])
        if tag in ("th", "td") and "tbody" in self.open:
            self.rows[-1].append("")
        if tag not in VOID or (tag == "rect" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words.append(data)
        if "tbody" in self.open and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data

    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def ledger():
    norms = np.random.default_rng(3).gamma(2.0, 2.0, PEOPLE)
    norms[:3] = 50.0  # clipped, as some others are
    norms[10:12] = 0.0
    made = pa.Ledger(PEOPLE, **SETTINGS)
    made.record(norms, repeat=STEPS)
    return made


@pytest.fixture(scope="module")
def found(ledger):
    return assess(ledger, 1e-5, labels=np.array(["north", "south", "west"])[np.arange(PEOPLE) % 3])


@pytest.fixture(scope="module")
def read(ledger, found):
    return Page(page(gather(ledger, found), "A title"))


def made_up(individuals):
    """A report of individuals without a ledger."""
    numbers = Quantiles(np.array([0.05, 0.5, 0.95]), np.array([1.0, 2.0, 3.0]))
    upper = individuals.epsilon.upper
    return Report(
        summarise(individuals, (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)),
        Extremes(np.argsort(-upper)[:20], np.array([], dtype=int), 1, 1),
        (AtDelta(1e-5, 4.0, 4.4, numbers),),
        ((1.5, 0.01, 1000),),
        1.0,
        256,
    )


def test_headline_numbers(read, found):
    upper, worst = found.epsilon.upper, found.worst_case.upper
    text = read.text()
    assert f"Worst case {rounded_up(worst)} " in text
    assert f"Median {rounded_up(np.sort(upper)[PEOPLE // 2 - 1])} " in text
    under = int(np.sum(upper < worst / 2))
    assert f"{100 * under / PEOPLE:.1f} % {under} of {PEOPLE} people." in text
    assert "60 people, 30 steps of training" in text


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


def test_large_counts_have_room_beside_the_axis(make_individuals):
    text = page(made_up(make_individuals(np.full(1_000_000, 0.5))), "")
    ends = {float(x): words for x, words in re.findall(r'<text class="end" x="([\d.]+)" y="[^"]+">([\d,]{7,})<', text)}
    assert "1,000,000" in ends.values()
    assert all(x - 7 * len(words) > 16 for x, words in ends.items())  # digits are 7 wide, the label ends at 16


@pytest.mark.parametrize("worst_rdp", [4.1, 6.0, 7.5, 8.0, 12.0, 50.0])
def test_the_words_at_the_worst_cases_lie_inside_the_chart(make_individuals, worst_rdp):
    text = page(made_up(replace(make_individuals([0.5, 1.0]), worst_case_rdp=worst_rdp)), "")
    for width, chart in ((760, "wide"), (360, "narrow")):
        inside = text[text.index(f'id="{chart}-desc"') :].split("</svg>")[0]
        marks = re.findall(r'<text class="(end strong|strong)" x="([\d.]+)" y="[^"]+">([^<]+)<', inside)
        assert len(marks) == 2
        for kind, x, words in marks:
            room = float(x) if kind == "end strong" else width - float(x)
            assert room > 6.8 * len(words)  # what a bold letter is wide on average


@pytest.mark.xfail(
    reason="needs the cap by the worst case in Ledger.epsilon, which is not in this branch", strict=False
)
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


def test_few_people_are_all_in_one_table(make_individuals):
    read = Page(page(made_up(make_individuals([0.5, 3.0, 1.0])), ""))
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


def test_a_proven_guarantee_is_not_called_a_diagnostic(make_individuals):
    people = make_individuals([1.0, 2.0])
    proven = replace(people, guarantee=replace(people.guarantee, proven_adaptive=True))
    assert "a diagnostic" not in Page(page(made_up(proven), "")).text()


def test_parameters_and_a_schedule(found):
    ledger = pa.Ledger(PEOPLE, **SETTINGS)
    ledger.record(np.ones(PEOPLE), repeat=7)
    ledger.record(np.ones(PEOPLE), repeat=5, noise_multiplier=3.0, sample_rate=0.1)
    read = Page(page(gather(ledger, assess(ledger, 2.5e-7, direction="add")), ""))
    assert read.tables["schedule"] == [["7", "2", "0.05"], ["5", "3", "0.1"]]
    text = read.text()
    for words in ("Clipping norm (max_grad_norm) 5", "one record added Sampling", "Steps 12", "noise ratios 256"):
        assert words in text
    assert "2.5 \N{MULTIPLICATION SIGN} 10 \N{MINUS SIGN}7" in text


def test_what_comes_from_outside_is_escaped(ledger, found):
    evil = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a\x00b\u202ec${title}"]
    people = replace(found, labels=np.array(evil)[np.arange(PEOPLE) % 3])
    text = page(gather(ledger, people), "</title><script>alert(2)</script>$version")
    read = Page(text)
    assert {tag for tag, _ in read.elements}.isdisjoint({"script", "img", "iframe", "object", "form"})
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    names = [row[0] for row in read.tables["by-group"]]
    assert set(names) == {*evil[:2], "a\ufffdb\ufffdc${title}"}
    assert "</title><script>alert(2)</script>$version" in read.text()
    text.encode()


def test_a_label_that_is_not_text_can_be_written(ledger, found):
    people = replace(found, labels=np.array(["\ud800", "x"])[np.arange(PEOPLE) % 2])
    file = io.BytesIO()
    page_writer(gather(ledger, people))(file)
    read = Page(file.getvalue().decode("utf-8"))
    assert sorted(row[0] for row in read.tables["by-group"]) == ["x", "\ufffd"]


def test_long_labels_and_many_groups_are_cut(make_individuals):
    many = 500
    labels = np.array([f"{i:04d}" + "x" * 500 for i in range(many)])
    text = page(made_up(make_individuals(np.linspace(0.1, 3, many), labels=labels)), "")
    read = Page(text)
    assert len(read.tables["by-group"]) == 200
    assert "476 more groups are not in the charts." in read.text()
    assert "300 more groups are not in the table." in read.text()
    assert len(text) < 200_000
    assert "x" * 75 in text and "x" * 80 not in text


def test_the_page_does_not_grow_with_the_people(make_individuals):
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
def test_corner_cases(make_individuals, upper, worst):
    people = make_individuals(upper, worst=worst, labels=np.zeros(len(upper), dtype=int))
    text = page(made_up(people), "")
    read = Page(text)
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


# ---------------------------------------------------------------------- for everybody, everywhere


def test_nothing_is_fetched_and_nothing_runs(read):
    for tag, attributes in read.elements:
        assert tag != "script"
        for name in ("src", "href", "srcset", "action", "style", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), (tag, attributes)
    style = template()
    assert "url(" not in style and "@import" not in style
    (policy,) = (a["content"] for t, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_structure_for_screen_readers(read):
    assert dict(read.elements)["html"] == {"lang": "en"}
    headings = [tag for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1" and set(headings[1:]) == {"h2"}
    assert len(read.ids) == len(set(read.ids))
    for tag, attributes in read.elements:
        for name in attributes.get("aria-labelledby", "").split():
            assert name in read.ids
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in read.ids
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        if tag == "svg":
            assert attributes.get("role") == "img" or attributes["aria-hidden"] == "true"
        if "scroll" in attributes.get("class", "").split():
            assert attributes["tabindex"] == "0" and attributes["role"] == "region"
    tags = [tag for tag, _ in read.elements]
    assert tags.count("main") == tags.count("header") == tags.count("footer") == 1
    assert tags.count("table") == tags.count("caption") > 5
    first_link = next(attributes for tag, attributes in read.elements if tag == "a")
    assert first_link == {"class": "skip", "href": "#content"}


def template():
    return resources.files("pld_accountant.report.html").joinpath("report.html").read_text(encoding="utf-8")


def palettes():
    """The colours in light, in dark, and on paper."""
    blocks = re.findall(r":root \{(.*?)\}", template(), flags=re.S)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks]


def contrast(one, other):
    """The ratio of WCAG 2.1."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast():
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
    assert len(palettes()) == 3
    for colours in palettes():
        for front in ("text", "quiet", "link"):
            for back in ("page", "panel"):
                assert contrast(colours[front], colours[back]) >= 4.5, (front, back)
        for front in ("text", "link"):
            assert contrast(colours[front], colours["note"]) >= 4.5
        for front in ("pld", "renyi", "quiet", "note-edge"):
            assert contrast(colours[front], colours["page"]) >= 3.0, front
        assert contrast(colours["pld"], colours["panel"]) >= 3.0


def test_markup_escapes_whatever_is_not_markup():
    assert escaped("<b>") + "" == "&lt;b&gt;"
    assert escaped(escaped("<b>")) == "&lt;b&gt;"
    assert "<i>" not in table("n", "<i>", ["<i>"], [["<i>", "<i>"]])


# ---------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path, monkeypatch, ledger):
    monkeypatch.chdir(tmp_path)
    ledger.save("ledger.npz")
    np.save("labels.npy", np.arange(PEOPLE) % 3)
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_writes_the_page(folder, ledger):
    words = ("--delta", "1e-6", "--groups", "labels.npy", "--deltas", "1e-3, 1e-4", "--title", "Mine")
    result = run("report", "ledger.npz", *words, "--out", "r.html")
    assert (result.exit_code, result.stderr) == (0, "")
    found = assess(ledger, 1e-6, labels=np.arange(PEOPLE) % 3)
    assert (folder / "r.html").read_text(encoding="utf-8") == page(gather(ledger, found, [1e-3, 1e-4]), "Mine")


def test_epsilon_writes_a_ledger_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    norms = np.random.default_rng(0).gamma(2.0, 2.0, (30, 5))
    np.save("norms.npy", norms)
    options = ("--noise-multiplier", 2, "--sample-rate", 0.05, "--max-grad-norm", 5, "--delta", 1e-5)
    assert run("epsilon", "norms.npy", *options, "--ledger", "ledger.npz").exit_code == 0
    expected = pa.Ledger.from_norms(norms, **SETTINGS)
    assert np.array_equal(pa.Ledger.load("ledger.npz").counts, expected.counts)
    assert run("report", "ledger.npz", "--delta", 1e-5, "--out", "r.html").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("absent.npz", "--delta", 1e-5, "--out", "r.html"), "absent.npz: No such file"),
        (("labels.npy", "--delta", 1e-5, "--out", "r.html"), "ledger file: it does not begin like one"),
        (("ledger.npz", "--delta", 2, "--out", "r.html"), "delta must lie in"),
        (("ledger.npz", "--delta", 1e-5, "--deltas", "1e-3,2", "--out", "r.html"), "delta must lie in"),
        (("ledger.npz", "--delta", 1e-5, "--deltas", "x", "--out", "r.html"), "must be numbers and commas"),
        (("ledger.npz", "--delta", 1e-5, "--out", "r.pdf"), "must end in .html"),
        (("ledger.npz", "--delta", 1e-5), "Missing option '--out'"),
        (("ledger.npz", "--delta", 1e-5, "--groups", "few.npy", "--out", "r.html"), "few.npy holds 2 labels"),
    ],
)
def test_mistakes(folder, words, message):
    np.save("few.npy", [1, 2])
    before = sorted(os.listdir())
    result = run("report", *words)
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line
    assert sorted(os.listdir()) == before
