"""`PotentialFilter`: proven for adaptive Poisson-sampled Gaussian steps; at the full norm nearly non-adaptive PLD."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from .. import deadline, validate
from ..files.saved_state import SavedArrays
from ..kernels.charge import BUDGET, DUST, admit_places
from ..potential.game import Run
from ..potential.kept import kept_game
from ..potential.norms import NORMS, OCTAVES, PARTS
from ..results import Guarantee
from .integer_budget import NoisyStepFilter, own_shares, round_up

__all__ = ["PotentialFilter"]

_LEAST_RATE = 1e-12
_SAMPLING = (
    "The order, the budget and the charges are fixed before the run. Steps are Poisson-sampled independently of the "
    "past and of each other, with Gaussian noise on the sum, and everybody is charged for every step to which they are "
    "admitted, sampled or not."
)


class PotentialFilter(NoisyStepFilter):
    """Keeps everybody within (epsilon, delta) over Poisson-sampled Gaussian steps that may depend on past releases.

    A step costs its Renyi divergence at one order, as in `RenyiFilter`.  The budget is larger than that of the Renyi
    conversion: it is a certified bound of what an adversary can reach who chooses every norm after seeing the past.
    :doc:`/how/potential` has the proof.

    Parameters
    ----------
    epsilon : float or array_like, (num_examples,)
        The target for everybody, or one for each person.
    delta : float
    num_examples, individual
        As in `GaussianFilter`.
    noise_multiplier : float
        Standard deviation of the noise over max_grad_norm.  A step may have more noise, not less.
    sample_rate : float or sequence of float
        Poisson sampling rate, at least 1e-12 and below 1; several if it changes during the run.  The best order is
        chosen for the first and the largest epsilon.
    max_grad_norm : float
        Clipping norm.
    alpha : float, optional
        Order of the charges, above 1.  None: about the one with the largest budget.
    seconds : float, optional
        Time for certifying the budget, which takes 2 to 60 seconds in ordinary runs and minutes in extreme ones.

    Raises
    ------
    ValueError
        If no budget of at least one full-norm step can be certified, or none within `seconds`; or for sample_rate=1:
        `GaussianFilter` is exact there.

    Notes
    -----
    The budget is computed once and kept on disk (``PLD_ACCOUNTANT_CACHE``, by default the user's cache folder).
    Relative norms are rounded up to a table, which costs 0.2 % of a step on average; norms below max_grad_norm / 64 are
    charged as that norm.

    References
    ----------
    Feldman and Zrnic (2021) for the charges.

    Examples
    --------
    >>> f = PotentialFilter(
    ...     1.1, 1e-5, num_examples=2, noise_multiplier=2.0, sample_rate=0.03, max_grad_norm=1.0, alpha=7.0
    ... )
    >>> f.admit([1.0, 0.5], steps=300)
    array([296, 300])
    """

    def __init__(
        self,
        epsilon: Any,
        delta: float,
        *,
        num_examples: int,
        noise_multiplier: float,
        sample_rate: Any,
        max_grad_norm: float,
        alpha: float | None = None,
        individual: bool = True,
        seconds: float | None = None,
    ) -> None:
        rates = np.atleast_1d(validate.numbers(sample_rate, "sample_rate"))
        if rates.ndim > 1 or not rates.size:
            raise ValueError("sample_rate must be a number or a list of numbers")
        self._rates = tuple(sorted({validate.sample_rate(rate) for rate in rates.tolist()}, reverse=True))
        if self._rates[-1] < _LEAST_RATE:
            raise ValueError(f"sample_rate must be at least {_LEAST_RATE:g}, got {self._rates[-1]!r}")
        if self._rates[0] == 1.0:
            raise ValueError("sample_rate must be below 1; GaussianFilter is exact for full-batch steps")
        largest, _ = own_shares(epsilon, lambda one: one)
        if np.shape(epsilon) not in ((), (num_examples,)):
            raise ValueError(f"epsilon must be one number or {num_examples}, got shape {np.shape(epsilon)}")
        epsilon = validate.numbers(epsilon, "epsilon")
        self._target = largest, validate.delta(delta)
        theta = None if alpha is None else validate.positive(validate.positive(alpha, "alpha") - 1.0, "alpha - 1")
        targets = tuple((one, delta) for one in sorted(set(np.ravel(epsilon).tolist()), reverse=True))
        noise = validate.noise_multiplier(noise_multiplier)
        try:
            with deadline.limited(seconds), deadline.strict():
                self._game = kept_game(Run(noise, self._rates, targets, theta))
        except deadline.OutOfTime:
            raise ValueError(f"no budget was certified within {seconds} seconds; allow more time") from None
        self._budget = self._game.budget(*self._target)
        _, shares = own_shares(epsilon, lambda one: self._game.budget(one, delta))
        self._sample_rate = float(rates[0])
        super().__init__(
            {
                "epsilon": epsilon if np.ndim(epsilon) else largest,
                "delta": self._target[1],
                "sample_rate": rates if np.ndim(sample_rate) else self._sample_rate,
                "alpha": 1.0 + self._game.theta,
            },
            num_examples=num_examples,
            noise_multiplier=noise,
            max_grad_norm=validate.clipping_norm(max_grad_norm),
            individual=individual,
            **shares,
        )
        self._parameters.pop("shares", None)  # they follow from epsilon
        self._units = np.ceil(self._game.charges.table / self._budget * BUDGET * (1 + 2.0**-49)).astype(np.int64)
        self._dust = max(DUST, int(self._units.min()) - 1)  # buys no step

    @property
    def budget(self) -> float:
        """The budget of the largest epsilon, in full-norm steps at the largest sample rate."""
        return self._budget

    @property
    def alpha(self) -> float:
        """Order of the charges."""
        return 1.0 + self._game.theta

    def _scaled(
        self,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> tuple[float, Fraction, np.ndarray]:
        """Clipping norm, the relative norm of a norm of 1, and the charges of the coming step."""
        noise, clip, rate = self._step(noise_multiplier, max_grad_norm, sample_rate)
        least = self._noise_multiplier
        if noise < least:
            raise ValueError(f"noise_multiplier must be at least the filter's, {least!r}, got {noise!r}")
        if rate > self._rates[0]:
            raise ValueError(f"sample_rate must be at most the filter's largest, {self._rates[0]!r}, got {rate!r}")
        assert clip is not None
        place = max(i for i, declared in enumerate(self._rates) if declared >= rate)
        return clip, Fraction(self._noise_multiplier) / (Fraction(noise) * Fraction(clip)), self._units[place]

    def admit(
        self,
        norms: Any,
        *,
        steps: int | None = None,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> np.ndarray:
        """Decide who takes part in the coming step, and book it, as `GaussianFilter.admit` does.

        Parameters
        ----------
        norms : array_like, (num_examples,)
            Norms of everybody.  Draw the sample afterwards, among the admitted people.
        steps : int, optional
            A stretch of so many steps, for all of which the norms hold.
        noise_multiplier, max_grad_norm, sample_rate : float, optional
            For this step or stretch only, if they differ from the filter's.  noise_multiplier must not be smaller than
            the filter's; a sample rate that the filter was not made with is charged as the next larger one.

        Returns
        -------
        ndarray, (num_examples,) bool, or int64 if `steps` is given

        **Cost**: about 12 nanoseconds a person.
        """
        step = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm, "sample_rate": sample_rate}
        return self._admit(norms, steps, **step)

    def _book(self, norms: np.ndarray, count: int, **step: Any) -> np.ndarray:
        clip, scale, units = self._scaled(**step)
        admitted = np.empty(norms.size, dtype=np.int64)
        table = units, OCTAVES, PARTS, self._dust
        if admit_places(norms, clip, round_up(scale), *table, count, self._left, admitted) >= 0:
            raise validate.norm_error(norms)
        return admitted

    def headroom(
        self,
        *,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> np.ndarray:
        """The largest norm that each person can still spend in the coming step, at most max_grad_norm.

        **Error**: rounded down to the table of norms; a person whose norm is clipped to it is admitted.
        """
        clip, scale, units = self._scaled(noise_multiplier, max_grad_norm, sample_rate)
        place = np.searchsorted(units, self._left, side="right") - 1
        norm = np.minimum(NORMS[place] * (1 - 2.0**-48) / float(scale), clip)
        norm = np.where(units[-1] <= self._left, clip, norm)
        return self._each(np.where((place < 0) | self._halted, 0.0, norm))

    def spent(self) -> np.ndarray:
        """Each person's spent budget, in full-norm steps at the largest sample rate, rounded up.  Sensitive.

        Returns
        -------
        ndarray, (num_examples,)
        """
        return np.minimum(self._share_spent() * self._budget * (1 + 2.0**-51), self._budget)

    @property
    def remaining(self) -> np.ndarray:
        """Each person's remaining budget, in full-norm steps, rounded down: (num_examples,).  Sensitive."""
        return self._share_left() * self._budget * (1 - 2.0**-51)

    def epsilon(self, delta: float) -> Any:
        """The epsilon at `delta` that the budget implies; (num_examples,) if people have epsilons of their own.

        The one budget bounds every delta at once.
        """
        delta = validate.delta(delta)
        return self._by_share(lambda share: self._game.epsilon(delta, share * self._budget))

    def budget_of(self, epsilon: float, delta: float) -> float:
        """The budget that implies another (epsilon, delta), in full-norm steps, rounded down; 0 if there is none.

        At most the largest budget for which the filter has a certified bound, about `budget`.
        """
        return self._game.budget(validate.positive(epsilon, "epsilon"), validate.delta(delta))

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP, proven for adaptive steps."""
        epsilon, delta = self._target
        own = "" if self._shares is None else " (or the person's own smaller epsilon)"
        return Guarantee(
            "adaptive, approximate DP of sampled Gaussian steps",
            True,
            f"Everything released is (epsilon, delta)-DP, epsilon = {epsilon!r}{own}, delta = {delta!r}, for the "
            "adding or removing of one person. The same budget keeps an epsilon at every other delta, which the filter "
            "tells. " + self.conditions(),
            "docs/how/potential.rst, Theorem 1, on the charges of Feldman and Zrnic (2021)",
            self._target,
        )

    def conditions(self) -> str:
        """The conditions of the guarantee, in sentences."""
        return _SAMPLING + self._condition()

    def _state(self) -> dict[str, np.ndarray]:
        return {**super()._state(), "budget": np.array(self._budget), "full": self._full}

    def _restore(self, saved: SavedArrays) -> None:
        """See `SavedState`."""
        self._restore_spent(saved)
        self._restore_halted(saved)

    def _restore_spent(self, saved: SavedArrays) -> np.ndarray:
        """Take over what was spent; return who spent more than their budget: (budgets,) bool.

        Budgets certified by another release, or at an order given, may be others than those saved.  What was spent
        stays spent: it is a sum of charges, which budgets do not change.
        """
        budget = float(saved.take("budget", np.float64, (), least=1.0, most=1e300))
        full = saved.take("full", np.int64, self._full.shape, least=1, most=BUDGET)
        left = self._saved_left(saved, full)
        used = full - left
        if budget != self._budget or not np.array_equal(full, self._full):
            ratio = Fraction(budget) / Fraction(self._budget)
            used = np.array([min(math.ceil(one * ratio), BUDGET + 1) for one in used.tolist()], dtype=np.int64)
        self._left = np.maximum(self._full - used, 0)
        return used > self._full
