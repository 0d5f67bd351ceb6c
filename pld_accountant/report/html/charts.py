"""Histograms as inline SVG.  Every shape has a class; the page's style sheet gives the colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...rounding import rounded_up
from ..histogram import Histogram
from .markup import Markup, escaped

__all__ = ["Mark", "histogram_chart", "small_chart"]

# in the units of a chart
_ROW = 17  # height of a line of words above the bars
_STRONG = 7.5  # largest width of a bold letter


@dataclass(frozen=True)
class Mark:
    """A vertical line at `place` with a label; `kind` is its class, ``worst`` or ``worst dashed``."""

    place: float
    words: str
    kind: str


@dataclass(frozen=True)
class _Frame:
    """The rectangle to which values from 0 to `most_x` and from 0 to `most_y` are mapped."""

    left: float
    right: float
    top: float
    bottom: float
    most_x: float
    most_y: float

    def x(self, value: float) -> str:
        return _short(self.left + (self.right - self.left) * value / self.most_x)

    def y(self, value: float) -> str:
        return _short(self.bottom - (self.bottom - self.top) * value / self.most_y)


def histogram_chart(
    filled: Histogram,
    outlined: Histogram,
    marks: Sequence[Mark],
    half: tuple[float, str] | None,
    *,
    size: tuple[int, int],
    name: str,
    title: str,
    description: str,
) -> Markup:
    """A chart of bars and of an outline over them, with axes.

    Parameters
    ----------
    marks : sequence of Mark
        Their labels stand in lines above the bars, the first on top.
    half : (float, str) or None
        Right end of a bracket that starts at 0 over the bars, and its label.
    size : (int, int)
        Width and height in the chart's own units; letters are 12 high.
    name : str
        Prefix of the ids, unique on the page.
    """
    width, height = size
    most_x = max([float(filled.edges[-1]), float(outlined.edges[-1]), *(mark.place for mark in marks)]) or 1.0
    most_y = float(max(filled.counts.max(), outlined.counts.max(), 1))
    above = _ROW * len(marks) + (_ROW + 8 if half else 6)
    left = 26 + 7 * len(f"{most_y:,.0f}")  # the name of the axis and the widest number beside it
    frame = _Frame(left, width - 12, 8 + above, height - 46, most_x, most_y)
    parts = [
        *_axes(frame, width),
        f'<path class="pld" d="{_bars(frame, filled)}"/>',
        *(f'<path class="{kind}" d="{_outline(frame, outlined)}"/>' for kind in ("halo", "renyi")),
        *_hover(frame, filled),
    ]
    for row, mark in enumerate(marks):
        parts += _mark(frame, mark, 8 + _ROW * row + 10)
    if half:
        end, words = half
        y = frame.top - 3
        parts.append(f'<path class="bracket" d="M{frame.x(0)} {y}v-5H{frame.x(end)}v5"/>')
        parts.append(f'<text x="{_short(frame.left + 4)}" y="{_short(y - 9)}">{escaped(words)}</text>')
    return _image(width, height, name, title, description, parts)


def small_chart(counted: Histogram, median: float, most: float, *, name: str, title: str, description: str) -> Markup:
    """A chart of bars from 0 to `most` with the median marked; its own largest count gives the height scale."""
    width, height = 160, 74
    frame = _Frame(6, width - 6, 6, height - 18, most, float(max(counted.counts.max(), 1)))
    parts = [
        f'<path class="pld" d="{_bars(frame, counted)}"/>',
        f'<path class="axis" d="M{frame.x(0)} {frame.bottom}H{frame.x(most)}"/>',
        f'<text x="{frame.x(0)}" y="{height - 4}">0</text>',
        f'<text class="end" x="{frame.x(most)}" y="{height - 4}">{rounded_up(most)}</text>',
    ]
    if math.isfinite(median):
        parts.append(f'<path class="median" d="M{frame.x(median)} {frame.top}V{frame.bottom}"/>')
    return _image(width, height, name, title, description, parts)


def _image(width: int, height: int, name: str, title: str, description: str, parts: Sequence[str]) -> Markup:
    inside = "\n".join(parts)
    return Markup(
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-title {name}-desc">\n'
        f'<title id="{name}-title">{escaped(title)}</title>\n'
        f'<desc id="{name}-desc">{escaped(description)}</desc>\n{inside}\n</svg>'
    )


def _bars(frame: _Frame, counted: Histogram) -> str:
    """One closed shape for every run of bins that are not empty."""
    path = ""
    for start, stop in _runs(counted.counts):
        steps = "".join(f"V{frame.y(counted.counts[i])}H{frame.x(counted.edges[i + 1])}" for i in range(start, stop))
        path += f"M{frame.x(counted.edges[start])} {frame.y(0)}{steps}V{frame.y(0)}Z"
    return path


def _outline(frame: _Frame, counted: Histogram) -> str:
    return _bars(frame, counted).replace("Z", "")


def _runs(counts: np.ndarray) -> list[tuple[int, int]]:
    padded = np.concatenate([[0], (counts > 0).astype(np.int8), [0]])
    change = np.flatnonzero(np.diff(padded))
    return list(zip(change[::2].tolist(), change[1::2].tolist(), strict=True))


def _hover(frame: _Frame, counted: Histogram) -> list[str]:
    """A tooltip for every bin that is not empty."""
    return [
        f'<rect class="hover" x="{frame.x(low)}" y="{_short(frame.top)}" '
        f'width="{_short(float(frame.x(high)) - float(frame.x(low)))}" height="{_short(frame.bottom - frame.top)}">'
        f"<title>{rounded_up(low)} to {rounded_up(high)}: {count:,} people by PLD</title></rect>"
        for low, high, count in zip(counted.edges[:-1], counted.edges[1:], counted.counts, strict=True)
        if count
    ]


def _mark(frame: _Frame, mark: Mark, baseline: float) -> list[str]:
    x = float(frame.x(mark.place))
    left = x > min(5 + _STRONG * len(mark.words), (frame.right + 12) / 2)  # the side that has room for the label
    return [
        f'<path class="{mark.kind}" d="M{_short(x)} {_short(baseline - 9)}V{_short(frame.bottom)}"/>',
        f'<text class="{"end strong" if left else "strong"}" x="{_short(x + (-5 if left else 5))}" '
        f'y="{_short(baseline)}">{escaped(mark.words)}</text>',
    ]


def _axes(frame: _Frame, width: int) -> list[str]:
    across, up = _ticks(frame.most_x, max(4, width // 75)), _ticks(frame.most_y, 5, whole=True)
    middle = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    return [
        f'<path class="grid" d="{"".join(f"M{frame.x(0)} {frame.y(n)}H{frame.x(frame.most_x)}" for n in up if n)}"/>',
        *(f'<text class="end" x="{_short(frame.left - 6)}" y="{float(frame.y(n)) + 4:g}">{n:,.0f}</text>' for n in up),
        f'<path class="axis" d="M{frame.x(0)} {frame.y(0)}H{frame.x(frame.most_x)}'
        f'{"".join(f"M{frame.x(v)} {frame.y(0)}v4" for v in across)}"/>',
        *(f'<text class="middle" x="{frame.x(v)}" y="{_short(frame.bottom + 17)}">{_plain(v)}</text>' for v in across),
        f'<text class="middle" x="{_short(middle[0])}" y="{_short(frame.bottom + 38)}">Individual epsilon</text>',
        f'<text class="middle" transform="translate(12 {_short(middle[1])}) rotate(-90)">Number of people</text>',
    ]


def _ticks(top: float, most: int, *, whole: bool = False) -> list[float]:
    """0 and up to `most` round numbers, not above `top`."""
    power = 10.0 ** math.floor(math.log10(top / most))
    step = next(power * f for f in (1, 2, 5, 10, 20) if power * f * most >= top)
    step = max(1.0, step) if whole else step
    return [step * i for i in range(int(top / step * (1 + 1e-12)) + 1)]


def _plain(value: float) -> str:
    return f"{value:.4g}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
