"""Mechanisms as texts, such as ``DiscreteGaussian(20)``: `written` makes the text, and `parsed` reads it."""

from __future__ import annotations

import ast
import math
from typing import Any

from .. import validate
from .bounded_range import ExponentialMechanism
from .discrete import DiscretePair
from .fixed_size import FixedSizeBatch
from .gaussian import Gaussian
from .gaussian_mixture import GaussianMixture, GroupGaussian, ReplaceOneSampledGaussian
from .laplace import Laplace
from .loss_distribution import LossDistribution
from .matrix import BandedMatrix, TreeAggregation
from .random_allocation import RandomAllocation
from .renyi_boxes import RenyiDP, ZeroConcentratedDP
from .sampled_gaussian import SampledGaussian
from .statistics import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
)
from .truncated_poisson import TruncatedPoisson

__all__ = ["parsed", "written"]

_MAKERS: dict[str, Any] = {
    maker.__name__: maker
    for maker in (
        ApproximateDP,
        BandedMatrix,
        DiscreteGaussian,
        DiscreteLaplace,
        DiscretePair,
        ExponentialMechanism,
        FixedSizeBatch,
        Gaussian,
        GaussianMixture,
        GroupGaussian,
        Laplace,
        LossDistribution,
        PermuteAndFlip,
        PoissonSampled,
        PureDP,
        RandomAllocation,
        RandomizedResponse,
        RenyiDP,
        ReplaceOneSampledGaussian,
        SampledGaussian,
        TreeAggregation,
        TruncatedPoisson,
        ZeroConcentratedDP,
    )
}
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
            number, tree = (tree.right, tree.left) if isinstance(tree.left, ast.Call) else (tree.left, tree.right)
            if isinstance(number, ast.Call):
                raise SyntaxError
            count = validate.count(_literal(number), "count")
        if not isinstance(tree, ast.Call):
            raise SyntaxError
        found = _value(tree)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"a step must be {_FORM}, got {text!r}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text}: {error}") from None
    # matrix mechanisms are lists of steps
    return [(step, n * count) for step, n in (found if isinstance(found, list) else [(found, 1)])]


def written(mechanism: Any) -> str:
    """The text of a mechanism, from which `parsed` makes an equal one.

    Raises
    ------
    ValueError
        If there is none, as for a user's own laws.
    """
    text = repr(mechanism)
    try:
        again = parsed(text)
    except ValueError:
        again = []
    if again != [(mechanism, 1)]:
        raise ValueError(f"{text} has no text from which it could be made again")
    return text


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
    options: dict[str, Any] = {}
    for one in tree.keywords:
        if one.arg in options:
            raise ValueError(f"{one.arg} is given twice")
        options[one.arg or ""] = _value(one.value)
    if name == "sqrt":
        return math.sqrt(*arguments)
    if name not in _MAKERS:
        raise ValueError(f"{ast.unparse(tree.func)!r} is no mechanism; there are {', '.join(_MAKERS)}")
    return _MAKERS[name](*arguments, **options)
