"""The Renyi filter, for one or several orders, of full-batch or Poisson-sampled Gaussian steps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from .. import validate
from ..kernels.charge import admit_table
from ..notions import rdp
from ..results import Guarantee
from ..rounding import exact
from .integer_budget import NoisyStepFilter, own_shares
from .renyi_charges import best_order, charge_table, squares_within

__all__ = ["RenyiFilter"]

_MOST_TABLES = 64  # bounds the memory of a schedule that never repeats


class RenyiFilter(NoisyStepFilter):
    """Keeps everybody within (alpha, budget)-Renyi DP, at one order or at several orders at once.

    Parameters
    ----------
    budget : float or array_like
        Renyi divergence in nats, above 0; for several orders one number for all or one for each.
    alpha : float or array_like
        Orders, above 1.  For a single target (epsilon, delta) one order is best: see `for_epsilon`.
    num_examples, noise_multiplier, max_grad_norm, individual, target
        As in `GaussianFilter`; max_grad_norm is required if steps are sampled.
    sample_rate : float
        Poisson sampling rate of the steps.  If it is 1, all steps must be full-batch.
    shares : array_like, (num_examples,), optional
        The part of each budget that each person has, above 0 and at most 1; None: all of it.

    References
    ----------
    Feldman and Zrnic (2021), Theorems 4.3 and 4.5, Remark 4.4; Mironov, Talwar and Zhang (2019) for the
    sampled Gaussian.

    Examples
    --------
    >>> f = RenyiFilter(0.441, 21, num_examples=1, noise_multiplier=100.0, max_grad_norm=1.0)
    >>> sum(bool(f.admit([1.0])[0]) for step in range(500))
    420
    """

    def __init__(
        self,
        budget: Any,
        alpha: Any,
        *,
        num_examples: int,
        noise_multiplier: float,
        max_grad_norm: float | None = None,
        sample_rate: float = 1.0,
        individual: bool = True,
        target: tuple[float, float] | None = None,
        shares: Any = None,
    ) -> None:
        self._alpha, self._budget = _orders_and_budgets(alpha, budget)
        self._single = np.ndim(alpha) == 0
        self._sample_rate = validate.sample_rate(sample_rate)
        if self._sample_rate < 1 and max_grad_norm is None:
            raise ValueError("max_grad_norm must be given if sample_rate is below 1")
        parameters = {
            "budget": float(self._budget[0]) if self._single else self._budget,
            "alpha": float(self._alpha[0]) if self._single else self._alpha,
            "sample_rate": self._sample_rate,
            **self._aim(target, self._epsilon),
        }
        # Full-batch charges of all orders are multiples of each other, so only the tightest order is counted.
        orders = self._alpha.size if self._sample_rate < 1 else 1
        super().__init__(
            parameters,
            num_examples=num_examples,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            individual=individual,
            orders=orders,
            shares=shares,
        )
        self._tables: dict[tuple[float, float], np.ndarray] = {}
        self._table(self._noise_multiplier, self._sample_rate)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Any,
        delta: float,
        *,
        noise_multiplier: float,
        sample_rate: float = 1.0,
        orders: Any = None,
        conversion: str = "best",
        **arguments: Any,
    ) -> RenyiFilter:
        """The filter at the order that admits the most full-norm steps within (epsilon, delta).

        Parameters
        ----------
        epsilon : float or array_like, (num_examples,)
            The target for everybody, or one for each person; the order is the best one for the largest.
        delta : float
        orders : array_like, optional
            Orders to choose from; None: all real numbers above 1.
        conversion : {"best", "simple"}
            See `rdp.rdp_budget`.

        Examples
        --------
        >>> f = RenyiFilter.for_epsilon(1.0, 1e-5, num_examples=1, noise_multiplier=100.0)
        >>> f"{f.epsilon(1e-5):.6f}"
        '1.000000'
        """
        delta = validate.delta(delta)
        noise, rate = validate.noise_multiplier(noise_multiplier), validate.sample_rate(sample_rate)
        largest, _ = own_shares(epsilon, lambda one: one)
        alpha = best_order(largest, delta, noise, rate, orders=orders, conversion=conversion)

        def budget(one: float) -> float:
            return float(rdp.rdp_budget(one, alpha, delta, conversion=conversion))

        _, shares = own_shares(epsilon, budget)
        step: dict[str, Any] = {"noise_multiplier": noise, "sample_rate": rate}
        return cls(budget(largest), alpha, target=(largest, delta), **step, **shares, **arguments)

    @classmethod
    def for_mu(cls, mu: float, orders: Any, **arguments: Any) -> RenyiFilter:
        """The filter whose budget at each order is the Renyi divergence of mu-GDP, alpha * mu**2 / 2.

        The guarantee is Renyi DP at these orders, not mu-GDP.

        Examples
        --------
        >>> f = RenyiFilter.for_mu(0.5, [2, 4], num_examples=1, noise_multiplier=2.0)
        >>> f.admit([1.0]), f.spent()
        (array([ True]), array([[0.25, 0.5 ]]))
        """
        alpha = validate.numbers(orders, "orders")
        return cls(alpha * validate.positive(mu, "mu") ** 2 / 2, alpha, **arguments)

    @property
    def alpha(self) -> Any:
        """The order, or the ascending orders."""
        return float(self._alpha[0]) if self._single else self._alpha.copy()

    @property
    def budget(self) -> Any:
        """The budget of each order."""
        return float(self._budget[0]) if self._single else self._budget.copy()

    @classmethod
    def _numbers(cls, parameters: dict[str, Any]) -> int:
        return super()._numbers(parameters) * (np.size(parameters["alpha"]) if parameters["sample_rate"] < 1 else 1)

    def _table(self, noise: float, sample_rate: float) -> np.ndarray:
        """The charge of a step, in units, on a grid of squared ratios: (cells + 1, orders), rounded up."""
        key = noise, sample_rate
        if key not in self._tables:
            alpha, budget = self._alpha, self._budget
            if self._sample_rate == 1:
                exact = [Fraction(a) / Fraction(b) for a, b in zip(alpha, budget, strict=True)]
                tightest = [exact.index(max(exact))]
                alpha, budget = alpha[tightest], budget[tightest]
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            self._tables[key] = charge_table(alpha, budget, noise, sample_rate)
        return self._tables[key]

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
            For this step or stretch only, if they differ from the filter's.  A new pair of noise and rate costs a new
            table.

        Returns
        -------
        ndarray, (num_examples,) bool, or int64 if `steps` is given

        **Cost**: about 12 nanoseconds a person at one order.
        """
        step = {
            "noise_multiplier": noise_multiplier,
            "max_grad_norm": max_grad_norm,
            "sample_rate": sample_rate,
        }
        return self._admit(norms, steps, **step)

    def _book(self, norms: np.ndarray, count: int, **step: Any) -> np.ndarray:
        noise, clip, rate = self._step(**step)
        table = self._table(noise, rate)
        admitted = np.empty(norms.size, dtype=np.int64)
        if admit_table(norms, *self._clipping(clip), table, count, self._left, admitted) >= 0:
            raise validate.norm_error(norms)
        return admitted

    def headroom(
        self,
        *,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> np.ndarray:
        """The largest norm that each person can still spend in the coming step, at most max_grad_norm."""
        noise, clip, rate = self._step(noise_multiplier, max_grad_norm, sample_rate)
        table = self._table(noise, rate)
        square = squares_within(table, self._left)
        ratio = np.sqrt(square) * (1 - 2.0**-49)
        ratio = np.where(square >= 1, 1.0, ratio) if clip is not None else ratio
        return self._each(np.where(self._halted, 0.0, ratio * (1.0 if clip is None else clip)))

    def _by_order(self, share: np.ndarray, rounding: float) -> np.ndarray:
        """Divergence at each order from the counted shares: (num_examples,) or (num_examples, orders)."""
        scale = self._budget
        if share.shape[1] < scale.size:
            scale = self._alpha * np.min(self._budget / self._alpha)
        values = np.minimum(share * scale * rounding, self._budget)
        return values[:, 0] if self._single else values

    def spent(self) -> np.ndarray:
        """Each person's spent divergence, rounded up, at most the budget.  Sensitive.

        Returns
        -------
        ndarray, (num_examples,), or (num_examples, orders) if alpha is an array
        """
        return self._by_order(self._share_spent(), 1 + 2.0**-50)

    @property
    def remaining(self) -> np.ndarray:
        """Each person's remaining divergence at each order, rounded down.  Sensitive."""
        return self._by_order(self._share_left(), 1 - 2.0**-50)

    def _epsilon(self, delta: float, share: float = 1.0, conversion: str = "best") -> float:
        budget = self._budget * share
        return float(np.min(rdp.rdp_epsilon(budget, self._alpha, validate.delta(delta), conversion=conversion)))

    def epsilon(self, delta: float, *, conversion: str = "best") -> Any:
        """The epsilon at `delta` that the budget implies, at the best of its orders; (num_examples,) if people have
        shares of it.
        """
        return self._by_share(lambda share: self._epsilon(delta, share, conversion))

    @property
    def guarantee(self) -> Guarantee:
        """(alpha, budget)-Renyi DP, proven for adaptive steps."""
        if self._single:
            promise = f"(alpha, B)-Renyi DP with alpha = {self.alpha!r} and B = {self.budget!r}"
        else:
            pairs = ", ".join(f"({exact(a)}, {b!r})" for a, b in zip(self._alpha, self._budget.tolist(), strict=True))
            promise = f"(alpha, B)-Renyi DP with (alpha, B) = {pairs}, and at no other order"
        sampled = (
            " Steps are Poisson-sampled independently of the past, and everybody is charged for every step "
            "to which they are admitted, sampled or not."
            if self._sample_rate < 1
            else ""
        )
        return Guarantee(
            "adaptive, Renyi DP",
            True,
            f"{self._promise(promise)}, for the adding or removing of one person.{self._parts()}{sampled}"
            f"{self._condition()}",
            f"Feldman and Zrnic (2021), Theorem {'4.5' if self._individual else '4.3'} and Remark 4.4",
            self._asked,
        )


def _orders_and_budgets(alpha: Any, budget: Any) -> tuple[np.ndarray, np.ndarray]:
    """Ascending orders and their budgets as arrays."""
    orders, budgets = validate.numbers(alpha, "alpha"), validate.numbers(budget, "budget")
    if orders.ndim > 1 or budgets.ndim > orders.ndim or not orders.size:
        raise ValueError("alpha must be a number or a list of orders, and budget a number or one for each order")
    if budgets.ndim == 1 and budgets.shape != orders.shape:
        raise ValueError(f"budget must have one element for each of {orders.size} orders, got {budgets.size}")
    orders, budgets = np.atleast_1d(orders), np.broadcast_to(budgets, orders.shape or (1,)).reshape(-1)
    if not np.all((orders > 1) & (orders < np.inf)):
        raise ValueError(f"alpha must be finite and above 1, got {alpha!r}")
    if not np.all((budgets > 0) & (budgets < np.inf)):
        raise ValueError(f"budget must be finite and above 0, got {budget!r}")
    order = np.argsort(orders, kind="stable")
    if np.any(np.diff(orders[order]) == 0):
        raise ValueError(f"alpha must not name an order twice, got {alpha!r}")
    return orders[order], budgets[order]
