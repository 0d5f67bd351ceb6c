"""The histogram shows the counts it was given, says what is proven, and changes nothing else."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from PIL import Image

from pld_accountant.report.figures import COLOURS, draw_histogram, save_figure
from pld_accountant.report.histogram import histogram
from pld_accountant.results import Bounds

UPPER = np.random.default_rng(1).gamma(2.0, 0.5, 400).clip(0, 4.0)


def texts(figure):
    (axes,) = figure.axes
    found = [t.get_text() for t in (*figure.texts, *axes.texts, *axes.get_legend().get_texts())]
    return [*found, axes.get_xlabel(), axes.get_ylabel()]


def hexed(colour):
    return matplotlib.colors.to_hex(colour).upper()


def test_bars_and_outline_are_the_counts_in_the_same_bins(make_individuals):
    people = make_individuals(UPPER)
    (axes,) = draw_histogram(people, bins=20).axes
    bars, outline = (patch for patch in axes.patches if hasattr(patch, "get_data"))
    assert hexed(bars.get_facecolor()) == COLOURS["PLD"]
    assert hexed(outline.get_edgecolor()) == COLOURS["Renyi"]
    for drawn, epsilon in ((bars.get_data(), UPPER), (outline.get_data(), people.rdp_epsilon)):
        assert np.array_equal(np.nan_to_num(drawn.values), histogram(epsilon, drawn.edges).counts)
        assert np.nansum(drawn.values) == len(UPPER)
        assert np.allclose(np.diff(drawn.edges)[1:], people.rdp_epsilon.max() / 20)


def test_no_bar_reaches_beyond_its_worst_case(make_individuals):
    upper = np.append(UPPER, [4.0, 4.0 * (1 - 1e-12), 4.0 * (1 + 1e-12)])
    (axes,) = draw_histogram(make_individuals(upper)).axes
    for patch, worst in zip(axes.patches, (4.0, 4.4), strict=True):
        drawn = patch.get_data()
        reached = drawn.edges[1:][np.nan_to_num(drawn.values) > 0].max()
        assert worst < reached < worst * (1 + 2e-6)


def test_the_worst_case_is_marked_and_named(make_individuals):
    figure = draw_histogram(make_individuals(UPPER))
    lines = [line for line in figure.axes[0].lines if hexed(line.get_color()) == COLOURS["worst case"].upper()]
    assert [line.get_xdata()[0] for line in lines] == [4.0, 4.4]
    assert {"Worst case by PLD: 4.000", "Worst case by Renyi: 4.401"} <= set(texts(figure))


@pytest.mark.parametrize(("worst", "drawn"), [(35.0, 2), (36.0, 0)])
def test_a_worst_case_far_beyond_everybody_leaves_the_axis_to_the_people(make_individuals, worst, drawn):
    people = make_individuals(UPPER)
    people = replace(people, worst_case=Bounds(worst, worst, worst), worst_case_rdp=1.1 * worst)
    top = people.rdp_epsilon.max()
    assert (worst > 8 * top) == (drawn == 0)
    figure = draw_histogram(people)
    (axes,) = figure.axes
    lines = [line for line in axes.lines if hexed(line.get_color()) == COLOURS["worst case"].upper()]
    assert sum(len(line.get_xdata()) > 0 for line in lines) == drawn
    words = f"Worst case by PLD: {worst:.2f}"
    assert (words if drawn else f"{words}, beyond the axis") in texts(figure)
    assert drawn or axes.get_xlim()[1] < 1.1 * top


def test_words_say_what_is_shown_and_what_is_proven(make_individuals):
    figure = draw_histogram(make_individuals(UPPER, delta=2.5e-7))
    told = " ".join(" ".join(texts(figure)).split())
    for words in (
        "Number of people",
        r"Individual privacy loss $\varepsilon$",
        r"2.5 $\times$ $10^{-7}$",
        "What is proven and what is not. [Somebody, Theorem 1]",
        f"{100 * np.mean(UPPER < 2):.0f} % of people: less than half the worst case",
        "400 people, 1,000 steps",
    ):
        assert words in told


def test_few_people_below_half_the_worst_case_are_not_counted(make_individuals):
    """Two of 400, then all but two of them, then too few people at all."""
    for upper in (np.r_[0.1, 0.2, np.full(398, 3.0)], np.r_[3.0, 3.1, np.full(398, 0.5)], np.full(9, 0.5)):
        told = " ".join(texts(draw_histogram(make_individuals(upper, min_group=10))))
        assert "half the worst case" not in told and "Worst case by PLD" in told


def test_people_without_a_certificate_are_told_in_the_caption(make_individuals):
    assert "2 without a certified bound are not shown" in " ".join(
        " ".join(texts(draw_histogram(make_individuals([1.0, np.inf, np.inf])))).split()
    )


@pytest.mark.parametrize(
    ("upper", "worst"),
    [
        (UPPER, 4.0),
        (np.zeros(5), 0.0),
        (np.zeros(5), 4.0),
        (np.full(3, 1e-9), 2e-9),
        (np.full(1000, 300.0), 300.0),
        (np.full(3, np.inf), np.inf),
        (np.array([1.0]), 4.0),
    ],
)
@pytest.mark.parametrize("sentence", ["Short.", "What is proven about many gradients must be known. " * 8])
def test_every_word_lies_inside_the_picture(make_individuals, upper, worst, sentence):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    people = make_individuals(upper, worst=worst)
    figure = draw_histogram(replace(people, guarantee=replace(people.guarantee, sentence=sentence)))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    ticks = [
        label
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        if low <= place <= high  # others are not drawn
    ]
    artists = [*figure.texts, *axes.texts, axes.get_legend(), axes.xaxis.label, axes.yaxis.label, *ticks]
    for artist in artists:
        box = artist.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0 and box.y0 >= 0, artist
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, artist
    below = axes.xaxis.label.get_window_extent().y0
    assert figure.texts[0].get_window_extent().y1 <= below, "the caption runs into the axis label"


def test_png_and_pdf_by_ending(tmp_path, make_individuals):
    figure = draw_histogram(make_individuals(UPPER))
    for name in ("a.png", "b.PNG", "a.pdf", "b.pdf"):
        save_figure(figure, tmp_path / name)
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == tuple(int(300 * inches) for inches in figure.get_size_inches())
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf
    assert pdf == (tmp_path / "b.pdf").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.PNG").read_bytes()
    with pytest.raises(ValueError, match=r"must end in \.png or \.pdf"):
        save_figure(figure, tmp_path / "a.jpg")


def test_the_colours_differ_in_grey_too():
    def lightness(colour):
        r, g, b = (
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in matplotlib.colors.to_rgb(colour)
        )
        return 116 * (0.2126 * r + 0.7152 * g + 0.0722 * b) ** (1 / 3) - 16

    kinds = sorted(lightness(COLOURS[kind]) for kind in ("PLD", "Renyi", "Gaussian", "worst case"))
    assert min(b - a for a, b in pairwise(kinds)) > 8


def test_drawing_neither_imports_pyplot_nor_changes_settings():
    script = """
import sys, io, matplotlib, numpy as np
before = matplotlib.rcParams.copy()  # dict() would resolve the backend and import pyplot
from pld_accountant.results import Bounds
from pld_accountant.results import Guarantee
from pld_accountant.report.individuals import Individuals
from pld_accountant.report.figures import draw_histogram, write_figure
x = np.array([1.0, 2.0])
people = Individuals(1e-5, Bounds(x, x, x), x, Bounds(2.0, 2.0, 2.0), 2.5, Guarantee("", False, "", ""), 3)
for ending in (".png", ".pdf"):
    write_figure(draw_histogram(people), io.BytesIO(), ending)
assert "matplotlib.pyplot" not in sys.modules
assert matplotlib.rcParams.copy() == before
"""
    subprocess.run([sys.executable, "-c", script], check=True)
