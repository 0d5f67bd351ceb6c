"""Matrix mechanisms and tree aggregation: lists of steps for `compose`, from a squared sensitivity or a band."""

from __future__ import annotations

import math

from .. import validate
from .base import noise_of_share
from .gaussian import Gaussian
from .sampled_gaussian import SampledGaussian
from .tree import tree_squared_sensitivity

__all__ = ["BandedMatrix", "TreeAggregation"]


def TreeAggregation(
    noise_multiplier: float, steps: int, trees: int = 1, *, max_participations: int = 1, min_separation: int = 0
) -> list[tuple[Gaussian, int]]:
    """DP-FTRL by binary trees, each person in one step of each tree, or in a few: one Gaussian a tree.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of each node's noise divided by the person's largest contribution; above 0.
    steps : int
        Leaves of a tree, at least 1.
    trees : int
        Trees, begun anew, at least 1.
    max_participations, min_separation : int
        A person takes part in at most so many steps of a tree, with at least so many others between two of them.

    Returns
    -------
    list of (Gaussian, int)
        For `compose`.

    Raises
    ------
    ValueError
        For an argument out of range.

    Notes
    -----
    A leaf changes at most floor(log2(steps)) + 1 nodes, which is the squared sensitivity of one participation; see
    `tree.tree_squared_sensitivity` for several.  Neighbours differ by one person, whose contributions are there or are
    0.

    For many participations far apart, the squared sensitivity is an upper bound (`tree.tree_squared_sensitivity`).  The
    bounds of epsilon are then those of that Gaussian mechanism: the upper one holds for the tree, the lower one may
    exceed the tree's epsilon.

    References
    ----------
    Kairouz, McMahan, Song, Thakkar, Thakurta and Xu (2021), "Practical and private (deep) learning without sampling or
    shuffling".

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose(TreeAggregation(8.83, 1600)).epsilon(1e-6).upper, 6)
    1.648659
    """
    square = tree_squared_sensitivity(steps, max_participations, min_separation)
    number = validate.count(trees, "trees", least=1)
    return [(Gaussian(validate.noise_multiplier(noise_multiplier) / math.sqrt(square) * (1.0 - 2.0**-51)), number)]


def BandedMatrix(
    noise_multiplier: float, sample_rate: float, steps: int, bands: int, max_column_norm: float = 1.0
) -> list[tuple[SampledGaussian, int]]:
    """A banded matrix mechanism whose batches are drawn by cyclic Poisson sampling: the steps to compose.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the person's largest contribution; above 0.
    sample_rate : float
        Probability with which a person of the block whose turn it is enters a step: bands times batch size over
        records, in (0, 1].
    steps, bands : int
        Steps in all, and bands of the lower triangular matrix; at least 1.
    max_column_norm : float
        The largest Euclidean norm of the matrix's columns, above 0.

    Returns
    -------
    list of (SampledGaussian, int)
        For `compose`.

    Raises
    ------
    ValueError
        For an argument out of range.

    Notes
    -----
    A person may enter one step in `bands`, ceil(steps / bands) in all, and columns that far apart do not overlap.

    References
    ----------
    Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu (2023), "(Amplified) banded matrix factorization",
    Theorem 4.

    Examples
    --------
    >>> BandedMatrix(4.0, 0.08, 1_000, 8, max_column_norm=2.0)
    [(SampledGaussian(noise_multiplier=2.0, sample_rate=0.08), 125)]
    """
    number, width = validate.count(steps, "steps", least=1), validate.count(bands, "bands", least=1)
    noise = noise_of_share(
        validate.noise_multiplier(noise_multiplier), validate.positive(max_column_norm, "max_column_norm")
    )
    return [(SampledGaussian(noise, sample_rate), -(-number // width))]
