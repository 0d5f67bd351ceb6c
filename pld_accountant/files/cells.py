"""Texts in cells of CSV tables, which a spreadsheet must not take for formulas."""

from __future__ import annotations

import re

__all__ = ["no_formula", "with_formula"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four: full width
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)


def no_formula(text: str) -> str:
    """A text with an apostrophe in front if a spreadsheet would take it for a formula, as OWASP advises [1]_.

    .. [1] OWASP, "CSV Injection", https://owasp.org/www-community/attacks/CSV_Injection
    """
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def with_formula(text: str) -> str:
    """The inverse of `no_formula`: the text without its apostrophe."""
    return text[1:] if text.startswith("'") and no_formula(text[1:]) == text else text
