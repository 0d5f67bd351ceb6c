"""JAX: norms and clipped sums of per-example gradients with `vmap`, and a transformation in the style of optax.

``examples/mnist_jax.py`` is a whole training loop with caps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .. import validate
from .individual import BELOW_CAP

__all__ = ["clip_each_and_add_noise", "clipped_sum", "gradient_norms", "norms_of"]


def _single(leaf: Any) -> Any:
    """In single precision at least: half precision would lift clipped norms over their caps by up to a percent."""
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def norms_of(gradients: Any) -> Any:
    """The norm of each example's gradient, of a tree of arrays with the examples on the first axis.

    In single precision at least, as the results of `clipped_sum`.
    """
    leaves = [_single(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(gradients)]
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf), axis=1) for leaf in leaves))


def clipped_sum(gradients: Any, caps: Any) -> Any:
    """The sum of per-example gradients, each clipped at its own cap.

    Parameters
    ----------
    gradients : tree of arrays, each of shape (examples, ...)
    caps : array, shape (examples,)
        0 leaves an example out: a batch that is padded to a fixed length has caps of 0 for the padding.  So does a cap
        that is negative or NaN.

    Returns
    -------
    tree of arrays without the axis of the examples
        No example contributes more than its cap, and nothing if its gradient is not finite.  In single precision at
        least: add the noise before the sum is rounded to half precision.

    Examples
    --------
    >>> clipped_sum({"w": jnp.array([[3.0, 4.0], [0.3, 0.4]])}, jnp.array([0.0, 1.0]))["w"].round(3).tolist()
    [0.30000001192092896, 0.4000000059604645]
    """
    norms = norms_of(gradients)
    wanted = caps.astype(norms.dtype) * BELOW_CAP
    kept = (wanted > 0.0) & jnp.isfinite(norms)
    factors = jnp.where(norms > wanted, wanted / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny), 1.0)
    factors = jnp.where(kept, factors, 0.0)

    def total(leaf: Any) -> Any:
        # a factor of 0 does not leave out what is not finite
        own = jnp.where(kept.reshape(-1, *[1] * (leaf.ndim - 1)), _single(leaf), 0.0)
        # by default GPUs and TPUs may round both factors of a product to half precision
        return jnp.tensordot(factors, own, axes=1, precision=jax.lax.Precision.HIGHEST)

    return jax.tree.map(total, gradients)


class NoiseState(NamedTuple):
    """The key of the coming step's noise."""

    key: Any


def clip_each_and_add_noise(
    noise_multiplier: float, max_grad_norm: float, expected_batch_size: float, key: Any
) -> optax.GradientTransformationExtraArgs:
    """A transformation from per-example gradients to the noisy mean of DP-SGD, with a cap for each example.

    Parameters
    ----------
    noise_multiplier, max_grad_norm : float
        The noise has standard deviation noise_multiplier * max_grad_norm in every coordinate, whatever the caps are.
    expected_batch_size : float
        The public number by which the noisy sum is divided: sample_rate times the number of people.
    key : jax.random.key

    Returns
    -------
    optax.GradientTransformationExtraArgs
        Its ``update(gradients, state, caps=caps)`` takes gradients with the examples on the first axis, and the caps of
        these examples.  Chain it before an optimizer, as in
        ``optax.chain(clip_each_and_add_noise(...), optax.sgd(0.1))``.

    Raises
    ------
    ValueError
        For a number that is not finite or not above 0.
    TypeError
        For a key that is none.
    """
    deviation = validate.noise_multiplier(noise_multiplier) * validate.clipping_norm(max_grad_norm)
    size = validate.positive(expected_batch_size, "expected_batch_size")
    jax.random.split(key)

    def init(_parameters: Any) -> NoiseState:
        return NoiseState(key)

    def update(gradients: Any, state: NoiseState, parameters: Any = None, *, caps: Any, **_others: Any) -> Any:
        total = clipped_sum(gradients, jnp.minimum(caps, max_grad_norm))
        following, present = jax.random.split(state.key)
        leaves, structure = jax.tree.flatten(total)
        keys = jax.random.split(present, len(leaves))
        noisy = [
            ((leaf + deviation * jax.random.normal(one, leaf.shape, leaf.dtype)) / size).astype(given.dtype)
            for leaf, one, given in zip(leaves, keys, jax.tree.leaves(gradients), strict=True)
        ]
        return jax.tree.unflatten(structure, noisy), NoiseState(following)

    return optax.GradientTransformationExtraArgs(init, update)


def gradient_norms(
    loss: Callable[[Any, Any, Any], Any], parameters: Any, inputs: Any, targets: Any, *, chunk: int = 1024
) -> np.ndarray:
    """The gradient norm of every example, before clipping, in micro-batches.

    Parameters
    ----------
    loss : callable
        ``loss(parameters, input, target)`` of one example.  Pass the same function at every call: it is compiled once.
    parameters : tree of arrays
    inputs, targets : arrays with an entry for each example
    chunk : int
        Examples in a micro-batch; the memory is that of their gradients.

    Returns
    -------
    ndarray, shape (examples,), float64

    Examples
    --------
    >>> gradient_norms(lambda w, x, y: (w @ x - y) ** 2 / 2, jnp.zeros(2), jnp.eye(2), jnp.array([3.0, -4.0])).tolist()
    [3.0, 4.0]
    """
    found = []
    for start in range(0, len(inputs), chunk):
        part = slice(start, start + chunk)
        found.append(np.asarray(_chunk_norms(loss, parameters, inputs[part], targets[part]), dtype=np.float64))
    return np.concatenate(found) if found else np.empty(0)


def _norms(loss: Any, parameters: Any, inputs: Any, targets: Any) -> Any:
    return norms_of(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, inputs, targets))


_chunk_norms = jax.jit(_norms, static_argnums=0)
