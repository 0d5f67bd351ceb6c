"""HTML and SVG as text.  Every value that is not `Markup` is escaped before it is inserted."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Markup", "escaped", "joined", "table"]

# Characters that an HTML document must not contain, and those that change the direction of the text after them.
_UNWANTED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is HTML."""


def escaped(value: Any) -> Markup:
    """A value as HTML; `Markup` is returned unchanged.

    Examples
    --------
    >>> escaped("<script>"), escaped(Markup("<b>1</b>")), escaped(2)
    ('&lt;script&gt;', '<b>1</b>', '2')
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_UNWANTED.sub("\ufffd", str(value))))


def joined(parts: Iterable[Any]) -> Markup:
    """The parts, each escaped, one on a line."""
    return Markup("\n".join(escaped(part) for part in parts))


def table(
    name: str, caption: Any, head: Sequence[Any], rows: Iterable[Sequence[Any]], *, words: bool = False
) -> Markup:
    """A table whose first column names the rows, in a box that scrolls sideways if the page is narrow.

    Parameters
    ----------
    name : str
        The id of the caption, unique on the page.
    words : bool
        Whether the last column holds words: they begin at its left, and long lines wrap.
    """
    kind = "scroll words" if words else "scroll"
    heads = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in head)
    lines = "\n".join(
        f'<tr><th scope="row">{escaped(first)}</th>{"".join(f"<td>{escaped(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return Markup(
        f'<div class="{kind}" role="region" aria-labelledby="{name}" tabindex="0">\n<table>\n'
        f'<caption id="{name}"><span>{escaped(caption)}</span></caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>\n</div>"
    )
