"""Opacus: individual accounting of a run that `PrivacyEngine.make_private` prepared, and an accountant for the engine.

>>> from pld_accountant.training.opacus import IndividualAccounting            # doctest: +SKIP
>>> individual = IndividualAccounting(model, optimizer, loader, criterion)     # doctest: +SKIP
>>> loader = individual.loader                                                 # doctest: +SKIP

Importing this module registers the accountant ``"pld"``: ``PrivacyEngine(accountant="pld")``.
"""

from __future__ import annotations

import copy
import functools
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from opacus.accountants import IAccountant, registry
from opacus.data_loader import CollateFnWithEmpty
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils import batch_memory_manager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn

from ..composition import compose
from ..composition.base import UNKNOWN
from ..filters.base import Filter
from ..ledger import Ledger
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..results import Bounds, Guarantee
from .individual import BELOW_CAP, IndividualSteps
from .people_loader import Batches, PeopleError, PeopleLoader, batch_of

__all__ = ["IndividualAccounting", "PLDAccountant", "PeopleError"]

_OPTIMIZERS = (DPOptimizer, DPOptimizerFastGradientClipping)


class IndividualAccounting:
    """Individual accounting of a training loop under Opacus.

    Parameters
    ----------
    model, optimizer, loader
        As `PrivacyEngine.make_private` returned them, with ``poisson_sampling=True`` and ``clipping="flat"``.
    criterion : callable
        The loss of the training loop, ``criterion(model(inputs), targets)`` for batches ``(inputs, targets)``.  It is
        evaluated with ``reduction="none"``.
    mode, refresh, slack, watched, seed, keep, journal
        See `IndividualSteps`.
    loss : callable, optional
        ``loss(model, batch)``, the loss of each example of a batch, shape (batch,), instead of the criterion.
    chunk : int
        Number of examples whose norms are computed at once at a refresh.

    Raises
    ------
    ValueError
        If batches are not drawn by Poisson sampling, or clipping is not flat, or training is distributed, or parameters
        have half precision.

    Notes
    -----
    **Which guarantee**: `guarantee` says it in words.  In the modes ``caps``, ``exact`` and ``watched`` the
    gradients are clipped at the caps that are counted.  If the criterion differs from the loss of the loop, caps fit
    less well, but the bounds stay bounds.  In mode ``observed`` nothing is clipped differently, and the numbers are
    estimates.

    **Cost**: a refresh computes the norms of all examples by ghost clipping, one forward and one backward pass in
    chunks without per-example gradients.  A step costs some nanoseconds for each person.

    **Gradients that are not finite**: such an example contributes nothing, and a refresh raises `ValueError`.  With
    ghost clipping it makes the whole sum NaN, also if its cap is 0, and so it does in mode ``observed``, as without
    caps in Opacus.

    Every batch must come from `loader`, once, and must be stepped on.  Otherwise `PeopleError` is raised before
    anything is released.  `BatchMemoryManager` takes `loader` as its data_loader.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loader: Any,
        criterion: Any = None,
        *,
        mode: str = "caps",
        refresh: Any = None,
        slack: float = 1.1,
        watched: Any = 1000,
        seed: int | None = None,
        keep: Filter | None = None,
        journal: Any = None,
        loss: Callable[[Any, Any], Any] | None = None,
        chunk: int = 2000,
    ) -> None:
        _check(model, optimizer, loader)
        if (criterion is None) == (loss is None):
            raise ValueError(
                "give either criterion or loss: the criterion of the training loop, or one loss for each example"
            )
        self._model, self._optimizer = model, optimizer
        self._loss = _loss_of(criterion) if loss is None else loss
        self._chunk = chunk
        self._batches = Batches()
        self._open = False  # inside of a logical step, whose caps are booked
        self._clipped = False  # whether the present physical batch was clipped
        self._caps: np.ndarray = np.empty(0)
        self._booked = (0.0, 0.0)
        self.loader = PeopleLoader(loader, self._batches)
        self._records, self._collate, self._invented = _records(loader)
        self._steps = IndividualSteps(
            len(loader.dataset),
            noise_multiplier=optimizer.noise_multiplier,
            sample_rate=self.loader.sample_rate,
            max_grad_norm=optimizer.max_grad_norm,
            mode=mode,
            refresh=refresh,
            slack=slack,
            watched=watched,
            seed=seed,
            keep=keep,
            journal=journal,
        )
        self._ghost: Any = None
        self._attach()

    # ------------------------------------------------------------------ inside of the optimizer

    def _attach(self) -> None:
        optimizer = self._optimizer
        if isinstance(optimizer, DPOptimizerFastGradientClipping):
            self._model.get_clipping_coef = self._around_coefficients(self._model.get_clipping_coef)
            optimizer.accumulate = self._around_accumulate(optimizer.accumulate)
        else:
            optimizer.clip_and_accumulate = self._around_clipping(optimizer.clip_and_accumulate)
        optimizer.add_noise = self._around_noise(optimizer.add_noise)

    def _around_clipping(self, clip: Callable[[], None]) -> Callable[[], None]:
        """Opacus's clipping, with a cap for every row instead of one clipping norm."""

        @functools.wraps(clip)
        def clip_at_caps() -> None:
            samples = self._optimizer.grad_samples
            caps = self._caps_of_batch(len(samples[0]), samples[0].device)
            if self._steps.mode == "observed" and len(caps):
                norms = torch.stack([g.reshape(len(g), -1).norm(2, dim=-1) for g in samples], 1).norm(2, dim=1)
                self._observe(norms)
            elif self._steps.mode != "observed":
                self._prepare(samples, caps)
            with _instead(self._optimizer, "max_grad_norm", caps):
                clip()
            self._taken()

        return clip_at_caps

    def _prepare(self, samples: list[Any], caps: Any) -> None:
        """Zero the gradients of examples whose cap is 0 or whose gradient is not finite: a factor of 0 would not.

        All become single precision, because norms would be rounded to the gradients' half precision under autocast.
        """
        kept = caps > 0.0
        for sample in samples:
            kept = kept & torch.isfinite(sample).reshape(len(sample), math.prod(sample.shape[1:])).all(dim=1)
        if not kept.all() or any(map(_is_half, samples)):
            for parameter, sample in zip(self._optimizer.params, samples, strict=True):
                sample[~kept] = 0.0
                parameter.grad_sample = sample.to(torch.promote_types(sample.dtype, torch.float32))

    def _around_coefficients(self, coefficients: Callable[[], Any]) -> Callable[[], Any]:
        """Ghost clipping's factors, with a cap for every row."""

        @functools.wraps(coefficients)
        def coefficients_at_caps() -> Any:
            norms = self._model.get_norm_sample()
            parts = (parameter._norm_sample for parameter in self._model.trainable_parameters)
            if self._steps.mode != "observed" and any(map(_is_half, parts)):
                raise ValueError(
                    "ghost clipping computes norms and clipped sums with the digits of the backward pass, and half "
                    "precision does not keep the caps: train without autocast, or with grad_sample_mode='hooks'"
                )
            caps = self._caps_of_batch(len(norms), norms.device)
            if self._steps.mode == "observed" and len(caps):
                self._observe(norms)
            with _instead(self._model, "max_grad_norm", caps):
                found = coefficients()
            self._clipped = True
            return found

        return coefficients_at_caps

    def _around_accumulate(self, accumulate: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(accumulate)
        def accumulate_clipped() -> None:
            if not self._clipped:
                raise PeopleError(
                    "this batch was not clipped: with ghost clipping, call backward() on the loss of the criterion "
                    "that make_private returned, once for every batch"
                )
            accumulate()
            self._taken()

        return accumulate_clipped

    def _around_noise(self, add_noise: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(add_noise)
        def add_noise_as_booked() -> None:
            if self._booked != (self._optimizer.noise_multiplier, self._optimizer.max_grad_norm):
                raise RuntimeError("the noise multiplier or the clipping norm changed between the batches of one step")
            add_noise()
            self._open = False

        return add_noise_as_booked

    def _caps_of_batch(self, rows: int, device: Any) -> Any:
        """The clipping targets of the gradients of the present batch, after the step is booked."""
        people = self._batches.present(rows, self._invented)
        if not self._open:
            self._begin()
        caps = self._caps[people] * BELOW_CAP if len(people) else np.zeros(rows)
        if self._steps.mode == "observed":
            caps = self._caps[people] if len(people) else np.zeros(rows)
        return torch.from_numpy(caps).to(device=device, dtype=torch.float32)

    def _begin(self) -> None:
        """Make a refresh if one is due, and book the coming step."""
        if self._steps.mode != "observed":
            _check_products(self._model, self._optimizer)
        if self._steps.due:
            self._steps.refresh(self.norms())
        self._booked = self._optimizer.noise_multiplier, self._optimizer.max_grad_norm
        self._caps = self._steps.begin(*self._booked)
        self._open = True

    def _observe(self, norms: Any) -> None:
        people = self._batches.present(len(norms), self._invented)
        if len(people):
            self._steps.observe(people, norms.detach().double().cpu().numpy())

    def _taken(self) -> None:
        self._batches.taken()
        self._clipped = False

    # ------------------------------------------------------------------ norms of everybody

    def norms(self) -> np.ndarray:
        """The gradient norm of each of `people` at the present model, before clipping; float64."""
        if self._ghost is None:
            self._ghost = _Ghost(getattr(self._model, "_module", self._model))
        return self._ghost.norms(self._loss, self._people_batches())

    def _people_batches(self) -> Any:
        everybody = self._steps.mode != "watched"
        records = self._records if everybody else torch.utils.data.Subset(self._records, self._steps.people.tolist())
        for start in range(0, len(records), self._chunk):
            yield batch_of(records, self._collate, start, min(start + self._chunk, len(records)))

    # ------------------------------------------------------------------ the answers

    def discard(self) -> None:
        """Forget batches that were drawn and not trained on, after an interrupted loop or a partial evaluation."""
        self._batches.discard()
        self._clipped = False

    @property
    def mode(self) -> str:
        """The mode."""
        return self._steps.mode

    @property
    def steps(self) -> int:
        """Number of steps booked."""
        return self._steps.steps

    @property
    def people(self) -> np.ndarray:
        """The numbers of the people to whom the rows of `ledger` and `epsilon` belong: everybody, or the watched."""
        return self._steps.people

    @property
    def caps(self) -> np.ndarray:
        """The present cap of each of `people`, before the filter."""
        return self._steps.caps

    @property
    def taking_part(self) -> np.ndarray:
        """Whether each person had a cap above 0 at the last step booked: (num_examples,) bool.  Sensitive."""
        return self._caps > 0

    @property
    def ledger(self) -> Ledger:
        """The ledger of all steps, for `summarise` and `write_report`; none in mode ``observed``."""
        return self._steps.ledger

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the numbers, in words."""
        return self._steps.guarantee

    def epsilon(self, delta: Any, **options: Any) -> Bounds:
        """Bounds of the epsilon of each of `people`, as `Ledger.epsilon`."""
        return self._steps.epsilon(delta, **options)

    def estimate(self, delta: float) -> np.ndarray:
        """Everybody's estimated epsilon in mode ``observed``; no bound in either direction."""
        return self._steps.estimate(delta)

    def worst_case(self) -> Any:
        """The composition of the steps for a person who is clipped at max_grad_norm at every step."""
        return self._steps.worst_case()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write caps, ledger and filter to one file; do it with every checkpoint of the model."""
        if self._open:
            raise RuntimeError("save between two steps, not between the batches of one step")
        self._steps.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Resume: take over what `save` wrote, with the checkpoint of the model; `StoreError` if it does not belong."""
        self._steps.load(path)
        self.discard()
        self._open = False


class _instead:
    """An attribute with another value for a while."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner, self._name, self._value = owner, name, value

    def __enter__(self) -> None:
        self._before = getattr(self._owner, self._name)
        setattr(self._owner, self._name, self._value)

    def __exit__(self, *_error: object) -> None:
        setattr(self._owner, self._name, self._before)


def _check(model: Any, optimizer: Any, loader: Any) -> None:
    if type(optimizer) not in _OPTIMIZERS:
        raise ValueError(
            f"individual accounting needs the optimizer of make_private with clipping='flat' on one process, got "
            f"{type(optimizer).__name__}"
        )
    sampler = getattr(loader, "batch_sampler", None)
    if not isinstance(sampler, UniformWithReplacementSampler):
        raise ValueError(
            "individual accounting needs Poisson sampling: pass the loader that make_private returned, with "
            f"poisson_sampling=True; the batches of this loader come from {type(sampler).__name__}"
        )
    if isinstance(loader, PeopleLoader) or "add_noise" in vars(optimizer):
        raise ValueError("this loader or optimizer belongs to another individual accounting")
    if sampler.num_samples != len(loader.dataset):
        raise ValueError(
            f"the sampler draws from {sampler.num_samples} records, the data set has {len(loader.dataset)}"
        )
    if isinstance(optimizer, DPOptimizerFastGradientClipping) != hasattr(model, "get_clipping_coef"):
        raise ValueError("model and optimizer must come from one call of make_private")
    half = {p.dtype for p in optimizer.params if _is_half(p)}
    if half:
        raise ValueError(
            f"parameters must have single precision, got {', '.join(map(str, half))}: a sum of clipped gradients "
            "that is rounded to fewer digits does not keep the caps; torch.autocast leaves the parameters as they are"
        )
    if not hasattr(model, "_module"):
        raise ValueError("model must be the one that make_private returned")


def _is_half(tensor: Any) -> bool:
    """Whether numbers have fewer digits than single precision."""
    return torch.finfo(tensor.dtype).bits < 32


def _check_products(model: Any, optimizer: Any) -> None:
    """Raise `ValueError` if products are rounded so far that a clipped gradient may be longer than its cap."""
    if torch.get_float32_matmul_precision() != "highest":
        raise ValueError(
            "matrix products with fewer digits than single precision may lift clipped gradients over their caps: call "
            "torch.set_float32_matmul_precision('highest'), the default of PyTorch"
        )
    # ghost clipping computes the clipped sum by a second backward pass
    if isinstance(optimizer, DPOptimizerFastGradientClipping) and torch.backends.cudnn.allow_tf32:
        convolutions = (part for part in model.modules() if isinstance(part, nn.modules.conv._ConvNd))
        if any(part.weight.is_cuda for part in convolutions):
            raise ValueError(
                "with ghost clipping, convolutions with fewer digits than single precision may lift clipped gradients "
                "over their caps: set torch.backends.cudnn.allow_tf32 = False"
            )


def _records(loader: Any) -> tuple[Any, Any, bool]:
    """The data set, the collate function, and whether an empty batch comes as a record of random numbers."""
    collate, invented = loader.collate_fn, False
    if isinstance(collate, CollateFnWithEmpty):
        invented = collate.rand_on_empty
        collate = collate.wrapped_collator_fn or (lambda batch: batch)
    return loader.dataset, collate, invented


def _loss_of(criterion: Any) -> Callable[[Any, Any], Any]:
    """The loss of each example of a batch (inputs, targets)."""
    criterion = getattr(criterion, "criterion", criterion)  # make_private wraps it for ghost clipping
    if isinstance(criterion, nn.Module):
        mean = getattr(criterion, "reduction", "mean") == "mean"
        each = copy.copy(criterion)
        each.reduction = "none"
    else:
        mean, each = True, functools.partial(criterion, reduction="none")

    def loss(model: Any, batch: Any) -> Any:
        inputs, targets = batch
        found = each(model(inputs), targets)
        if found.ndim > 1:
            found = found.flatten(1).mean(1) if mean else found.flatten(1).sum(1)
        return found

    return loss


def _to(batch: Any, device: Any) -> Any:
    """A batch on another device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _to(part, device) for name, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [_to(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


class _Ghost:
    """A copy of the model whose backward pass computes the norms of per-example gradients, not the gradients."""

    def __init__(self, module: nn.Module) -> None:
        self._source = module
        self._module = _without_hooks(module)
        self._wrapped = GradSampleModuleFastGradientClipping(self._module, loss_reduction="sum", max_grad_norm=1.0)

    def norms(self, loss: Callable[[Any, Any], Any], batches: Any) -> np.ndarray:
        with torch.no_grad():
            for own, other in zip(self._module.parameters(), self._source.parameters(), strict=True):
                own.copy_(other)
            for own, other in zip(self._module.buffers(), self._source.buffers(), strict=True):
                own.copy_(other)
        device = next(self._module.parameters()).device
        found = []
        with torch.enable_grad():
            for batch in batches:
                losses = loss(self._wrapped, _to(batch, device))
                losses.sum().backward()
                found.append(self._wrapped.get_norm_sample().detach().double().cpu().numpy())
                self._wrapped.zero_grad(set_to_none=True)
        return np.concatenate(found)


def _without_hooks(module: nn.Module) -> nn.Module:
    """A copy of a module without the hooks of Opacus, in training mode."""
    kept = []
    for part in module.modules():
        for name in ("_forward_hooks", "_backward_hooks", "autograd_grad_sample_hooks", "activations"):
            if name in part.__dict__:
                kept.append((part, name, part.__dict__[name]))
                if name.startswith("_"):
                    part.__dict__[name] = type(part.__dict__[name])()
                else:
                    del part.__dict__[name]
    try:
        copied = copy.deepcopy(module)
    finally:
        for part, name, value in kept:
            part.__dict__[name] = value
    return copied.train()


# ---------------------------------------------------------------------------- BatchMemoryManager

_split = batch_memory_manager.wrap_data_loader


@functools.wraps(_split)
def _split_with_people(*, data_loader: Any, **given: Any) -> Any:
    split = _split(data_loader=data_loader, **given)
    return PeopleLoader(split, data_loader.batches) if isinstance(data_loader, PeopleLoader) else split


# the manager makes a loader of its own from the parts of the given one
batch_memory_manager.wrap_data_loader = _split_with_people


# ---------------------------------------------------------------------------- the engine's accountant


class PLDAccountant(IAccountant):
    """The accountant ``"pld"`` for `PrivacyEngine`: certified epsilons of a person who is clipped at every step.

    The history is that of Opacus's accountants, (noise multiplier, sample rate, steps), so their states load.
    """

    history: list[Any]

    def __init__(self) -> None:
        super().__init__()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step."""
        if self.history and tuple(self.history[-1][:2]) == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, self.history[-1][2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, **options: Any) -> float:
        """The upper bound of epsilon: the true value is not larger.  inf if a step had no noise."""
        return float(self.bounds(delta).upper)

    def bounds(self, delta: float) -> Bounds:
        """Bounds of epsilon; none are known of samples without noise, which may leave the record out."""
        steps = [(sigma, rate, int(number)) for sigma, rate, number in self.history if number > 0]
        without_noise = [rate for sigma, rate, _ in steps if sigma == 0]
        if without_noise:
            return Bounds(np.inf, np.inf, np.inf) if max(without_noise) == 1 else UNKNOWN
        return compose([(SampledGaussian(sigma, rate), number) for sigma, rate, number in steps]).epsilon(delta)

    def load_state_dict(self, state_dict: Any) -> None:
        """Take over the history of this or of another accountant of Opacus."""
        if state_dict and state_dict.get("mechanism") in registry._ACCOUNTANTS:
            state_dict = {**state_dict, "mechanism": self.mechanism()}
        super().load_state_dict(state_dict)
        self.history = [tuple(entry) for entry in self.history]

    def __len__(self) -> int:
        """Number of steps."""
        return sum(int(entry[2]) for entry in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name in Opacus's registry."""
        return "pld"


registry.register_accountant(PLDAccountant.mechanism(), PLDAccountant, force=True)
