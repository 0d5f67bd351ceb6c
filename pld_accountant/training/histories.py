"""Histories of other accountants, of Opacus and of prv-accountant, as compositions; neither library is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import validate
from ..composition import Composition, compose
from ..mechanisms.gaussian import Gaussian
from ..mechanisms.laplace import Laplace
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..mechanisms.statistics import ApproximateDP

__all__ = ["composition_of"]


def composition_of(accountant: Any, num_self_compositions: int | Sequence[int] | None = None) -> Composition:
    """The composition of the steps of another accountant, for certified bounds.

    Parameters
    ----------
    accountant : object
        An accountant of Opacus, its ``state_dict()``, or its history: a list of (noise multiplier, sample rate, steps).
        Or what ``torch.load`` gives of a file of Opacus's ``PrivacyEngine.save_checkpoint``.
        Or an accountant of prv-accountant (`PRVAccountant`, `DPSGDAccountant`, `Accountant`), or a list of its privacy
        random variables.
    num_self_compositions : int or sequence of int, optional
        How often each privacy random variable is composed; by default the accountant's ``max_self_compositions``.  Only
        for prv-accountant.

    Returns
    -------
    Composition
        Its answers are the larger of both directions, where PRV accountants answer for removal alone.

    Raises
    ------
    ValueError
        For an object that is none of these, a privacy random variable that is not prv-accountant's own, a parameter out
        of its range, such as a noise multiplier of 0, or numbers of compositions that are missing or do not fit.

    Examples
    --------
    >>> run = composition_of([(2.0, 0.005, 6_000), (2.0, 0.005, 4_000)])
    >>> round(run.epsilon(1e-5).upper, 6)
    1.004113
    """
    owner = getattr(accountant, "accountant", accountant)  # prv-accountant's older Accountant holds a PRVAccountant
    if isinstance(owner, (str, os.PathLike)):
        raise ValueError(f"accountant must not be a file; load it first, as by torch.load({os.fspath(owner)!r})")
    if isinstance(owner, Mapping):
        owner = owner.get("privacy_accountant_state_dict", owner)
        if "history" not in owner:
            raise ValueError(f"accountant must have a history, as a state of Opacus has, got the keys {list(owner)}")
        entries = owner["history"]
    else:
        entries = getattr(owner, "history", getattr(owner, "prvs", owner))
    try:
        entries = list(entries)
    except TypeError:
        raise ValueError(
            f"accountant must have a history (Opacus) or prvs (prv-accountant), or be such a list, got {accountant!r}"
        ) from None
    if all(isinstance(entry, (tuple, list)) for entry in entries):
        if num_self_compositions is not None:
            raise ValueError("a history has its own numbers of steps: num_self_compositions must not be given")
        return compose([_step(entry) for entry in entries])
    numbers = num_self_compositions
    if numbers is None:
        numbers = getattr(owner, "max_self_compositions", None)
    if numbers is None:
        raise ValueError("num_self_compositions must be given with a list of privacy random variables")
    counts = list(numbers) if isinstance(numbers, Sequence) else [numbers]
    if len(counts) != len(entries):
        raise ValueError(f"num_self_compositions must have a number for each of {len(entries)}, got {len(counts)}")
    return compose([(_mechanism(entry), number) for entry, number in zip(entries, counts, strict=True)])


def _step(entry: Sequence[Any]) -> tuple[SampledGaussian, int]:
    try:
        noise, rate, steps = entry
    except ValueError:
        raise ValueError(f"history must hold (noise multiplier, sample rate, steps), got {entry!r}") from None
    return SampledGaussian(noise, rate), validate.count(steps, "steps")


def _mechanism(variable: Any) -> Any:
    """The mechanism of a privacy random variable; its class is known by name."""
    kind = type(variable).__name__ if type(variable).__module__.partition(".")[0] == "prv_accountant" else ""
    if kind == "PoissonSubsampledGaussianMechanism":
        return SampledGaussian(float(variable.sigma), float(variable.p))
    # the rounding of 1 / mu, a relative 2^-53, is below that of the bounds
    if kind == "GaussianMechanism":
        return Gaussian(1.0 / float(variable.mu))
    if kind == "LaplaceMechanism":
        return Laplace(1.0 / float(variable.mu))
    if kind == "PureDPMechanism":
        return ApproximateDP(float(variable.eps), 0.0)
    if kind == "ApproximateDPMechanism":
        return ApproximateDP(float(variable.pure_dp.eps), float(variable.delta))
    raise ValueError(f"must be a privacy random variable of prv-accountant, got {variable!r}")
