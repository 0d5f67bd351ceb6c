"""Steps as texts, such as ``10 * DiscreteGaussian(20)``."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

from .. import validate

__all__ = ["parsed", "read"]

_NAMES = (
    "ApproximateDP",
    "BandedMatrix",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscretePair",
    "ExponentialMechanism",
    "FixedSizeBatch",
    "Gaussian",
    "GaussianMixture",
    "GroupGaussian",
    "Laplace",
    "LossDistribution",
    "PermuteAndFlip",
    "PoissonSampled",
    "PureDP",
    "RandomAllocation",
    "RandomizedResponse",
    "RenyiDP",
    "ReplaceOneSampledGaussian",
    "SampledGaussian",
    "TreeAggregation",
    "TruncatedPoisson",
    "ZeroConcentratedDP",
)
_FORM = "MECHANISM or COUNT * MECHANISM, such as 10 * DiscreteGaussian(20)"


def parsed(text: str) -> list[tuple[Any, int]]:
    """The steps of a text, for `compose`.  The text calls a mechanism with numbers, ``sqrt`` and other mechanisms.

    Raises
    ------
    ValueError
        For a text of another form, which is not run, an unknown mechanism, or an argument that the mechanism refuses.
    """
    try:
        tree, count = ast.parse(text.strip(), mode="eval").body, 1
        if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
            count, tree = validate.count(_literal(tree.left), "count"), tree.right
        if not isinstance(tree, ast.Call):
            raise SyntaxError
        found = _value(tree)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"a step must be {_FORM}, got {text!r}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text}: {error}") from None
    # matrix mechanisms are lists of steps
    return [(step, n * count) for step, n in (found if isinstance(found, list) else [(found, 1)])]


def read(path: Path) -> list[str]:
    """The steps of a file, one in a line; what follows a ``#`` is left out."""
    lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line]


def _literal(tree: ast.expr) -> Any:
    try:
        return ast.literal_eval(tree)
    except ValueError:
        raise ValueError(f"{ast.unparse(tree)!r} is no number, list or mechanism") from None


def _value(tree: ast.expr) -> Any:
    if not isinstance(tree, ast.Call):
        return _literal(tree)
    name = tree.func.id if isinstance(tree.func, ast.Name) else ""
    arguments = [_value(one) for one in tree.args]
    options = {one.arg or "": _value(one.value) for one in tree.keywords}
    if name == "sqrt":
        return math.sqrt(*arguments)
    if name not in _NAMES:
        raise ValueError(f"{ast.unparse(tree.func)!r} is no mechanism; there are {', '.join(_NAMES)}")
    import pld_accountant

    return getattr(pld_accountant, name)(*arguments, **options)
