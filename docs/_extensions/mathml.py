"""Formulas as MathML, which browsers draw without a script and without the network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

_LOG = logging.getLogger(__name__)


_BAR = re.compile(r"<mo([^>]*)>\|</mo>")
_APPLY = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*(?:<mrow>\s*)?<mo[^>]*>[(\[])")


def _spaced(formula: str) -> str:
    """Set absolute values and the names of functions apart as TeX does."""
    formula = _BAR.sub(r'<mo\1 lspace="0" rspace="0">|</mo>', formula)
    return _APPLY.sub('<mspace width="0.17em"/>', formula)


def _converted(node: nodes.Node, *, display: bool) -> str:
    try:
        return _spaced(tex2mathml(node.astext(), as_block=display))
    except MathError as error:
        _LOG.warning("formula %r: %s", node.astext(), error, location=node)
        return "<code>formula</code>"


def _inline(self: Any, node: nodes.Node) -> None:
    self.body.append(_converted(node, display=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.Node) -> None:
    self.body.append('<div class="math">\n' + _converted(node, display=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
