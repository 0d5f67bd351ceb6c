"""Bounds of many steps at once that need no table: coarse, but for everybody, and from the steps' laws alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ..mechanisms import one_step
from ..tables.characteristic import SpectralMaker
from ..threads import blocks, few, in_order

__all__ = ["addition_cap", "addition_least", "surely_zero"]


def addition_cap(counts: NDArray, maker: SpectralMaker, rows: NDArray | None) -> NDArray:
    """The largest loss under addition, inf with full-batch steps: one step's is at most -log(1 - q)."""
    with np.errstate(divide="ignore"):
        most = -np.log1p(-maker.q) * (1.0 + 2.0**-50)
    if rows is not None:
        most = np.where(rows >= 0, most[rows], 0.0)
    full = np.isinf(most)
    most = np.where(full, 0.0, most)

    def cap(block: slice) -> NDArray:
        steps = counts[block].astype(np.float64)
        total = steps @ most * (1.0 + 1e-12)
        if full.any():
            total[steps[:, full].any(axis=1)] = np.inf
        return total

    caps = [found for _, found in in_order(cap, blocks(len(counts)), alone=few(len(counts)))]
    return np.concatenate(caps) if caps else np.zeros(0)


def addition_least(
    counts: NDArray, who: NDArray, maker: SpectralMaker, rows: NDArray | None, log_delta: float
) -> NDArray:
    """An epsilon that addition's surely is not below, from the event that no step's loss is below its value at -r.

    Under addition the loss falls in x ~ N(0, sigma^2), so with probability Phi(-r)^steps all steps together lose at
    least l, the sum of their losses at x = -r sigma; then delta(epsilon) >= Phi(-r)^steps (1 - exp(epsilon - l)).
    """
    if not who.size:
        return np.zeros(0)
    r = np.linspace(-8.0, 38.0, 737)
    x = np.multiply.outer(maker.sigma, -r)
    t = (2.0 * x - 1.0) / (2.0 * maker.sigma[:, None] ** 2)
    with np.errstate(over="ignore", divide="ignore"):
        loss = -np.log1p(maker.q[:, None] * np.expm1(np.minimum(t, 700.0)))
    if rows is not None:
        loss = np.where(rows[:, None] >= 0, loss[rows], 0.0)
    some = counts[who].astype(np.float64)
    together = some @ loss
    steps = some.sum(axis=1) if rows is None else some[:, rows >= 0].sum(axis=1)
    log_share = log_delta - steps[:, None] * log_ndtr(-r) * (1.0 + 1e-12)
    with np.errstate(invalid="ignore", divide="ignore"):
        epsilon = together - 1e-12 * (some @ np.abs(loss)) + np.log1p(-np.exp(np.minimum(log_share, 0.0)))
    return np.maximum(epsilon.max(axis=1), 0.0)


def surely_zero(
    counts: NDArray, many: NDArray, maker: SpectralMaker, log_delta: float, rows: NDArray | None
) -> NDArray:
    """Whether delta(0) is at most delta, because total variation distances add up under composition."""
    zero = np.zeros(maker.buckets)
    once = np.exp(one_step.log_delta(zero, maker.sigma, maker.q, "remove")) * (1.0 + one_step.SLACK)
    if rows is not None:
        once = np.where(rows >= 0, once[rows], 0.0)
    parts = [counts[many[block]].astype(np.float64) @ once for block in blocks(many.size)]
    total = np.concatenate(parts or [zero[:0]])
    return total * (1.0 + 1e-12) <= np.exp(log_delta)
