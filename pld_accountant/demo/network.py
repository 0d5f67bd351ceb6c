"""A small feed-forward network whose per-example gradient norms cost no more than the gradients themselves.

For one example, the gradient of a dense layer is the outer product of the layer's input and of the error at its
output.  The norm of the gradient is therefore the product of two norms, and a weighted sum over examples is one matrix
product.  No per-example gradient is formed (Goodfellow 2015, arXiv 1510.01799).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ExampleGradients", "Network"]


@dataclass(frozen=True)
class ExampleGradients:
    """The gradient of the loss of every example, in factors.

    Attributes
    ----------
    inputs : sequence of ndarray
        For each layer, its input: (n, inputs).
    errors : sequence of ndarray
        For each layer, the derivative of the loss by its output: (n, outputs).
    """

    inputs: Sequence[np.ndarray]
    errors: Sequence[np.ndarray]

    @property
    def norms(self) -> np.ndarray:
        """The Euclidean norm of each example's gradient over all weights and biases, shape (n,).

        Each is ``sqrt(sum over layers of (|input|^2 + 1) |error|^2)``; the 1 is the bias.
        """
        squares = sum(
            (np.einsum("ni,ni->n", x, x) + 1) * np.einsum("no,no->n", e, e)
            for x, e in zip(self.inputs, self.errors, strict=True)
        )
        return np.sqrt(squares)

    def weighted_sum(self, weights: np.ndarray) -> np.ndarray:
        """The sum of the gradients times `weights`, as one vector in the order of the parameters.

        Parameters
        ----------
        weights : ndarray of shape (n,)
            For example the clipping factor of each sampled example, and 0 for the others.

        Notes
        -----
        **Cost**: one matrix product per layer.  If at most half of the weights are not 0, the product is taken over
        a copy of these examples only.
        """
        parts = []
        rows = np.flatnonzero(weights)
        chosen = slice(None) if 2 * len(rows) > len(weights) else rows
        for x, e in zip(self.inputs, self.errors, strict=True):
            scaled = e[chosen] * weights[chosen, np.newaxis]
            parts += [(x[chosen].T @ scaled).ravel(), scaled.sum(axis=0)]
        return np.concatenate(parts)


@dataclass(frozen=True)
class Network:
    """A feed-forward classifier: dense layers, ReLU between them, softmax and cross-entropy at the end.

    The object describes the network; its parameters are one vector, an argument of every method.  Without hidden
    layers it is logistic regression.

    Attributes
    ----------
    sizes : tuple of int
        Features, hidden units of each layer, classes: ``(64, 32, 10)``, or ``(64, 10)`` without a hidden layer.

    Examples
    --------
    >>> network = Network((2, 3))
    >>> theta = network.initial(np.random.default_rng(0))
    >>> x, y = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([0, 2])
    >>> network.example_gradients(theta, x, y).norms.shape
    (2,)
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise ValueError(f"sizes must be at least two positive layer widths, got {self.sizes}")

    @property
    def num_parameters(self) -> int:
        """The length of the vector of parameters."""
        return sum((a + 1) * b for a, b in zip(self.sizes, self.sizes[1:], strict=False))

    def initial(self, rng: np.random.Generator) -> np.ndarray:
        """Initial parameters: normal weights of variance 2 / inputs (He et al. 2015), biases 0."""
        parts = []
        for a, b in zip(self.sizes, self.sizes[1:], strict=False):
            parts += [rng.normal(0.0, np.sqrt(2 / a), a * b), np.zeros(b)]
        return np.concatenate(parts)

    def layers(self, parameters: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Views of the parameters as (weights, biases) of each layer, weights of shape (inputs, outputs)."""
        views, at = [], 0
        for a, b in zip(self.sizes, self.sizes[1:], strict=False):
            views.append((parameters[at : at + a * b].reshape(a, b), parameters[at + a * b : at + (a + 1) * b]))
            at += (a + 1) * b
        return views

    def _forward(self, parameters: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        """The input of each layer, and the logits last."""
        values = [x]
        for index, (weights, biases) in enumerate(self.layers(parameters)):
            z = values[-1] @ weights + biases
            values.append(z if index == len(self.sizes) - 2 else np.maximum(z, 0))
        return values

    def predict(self, parameters: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The most likely class of every example, shape (n,)."""
        return np.argmax(self._forward(parameters, x)[-1], axis=1)

    def losses(self, parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The cross-entropy of every example in nats, shape (n,)."""
        logits = self._forward(parameters, x)[-1]
        top = logits.max(axis=1)
        log_total = top + np.log(np.exp(logits - top[:, np.newaxis]).sum(axis=1))
        return log_total - logits[np.arange(len(y)), y]

    def accuracy(self, parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
        """The share of examples whose class `predict` gets right."""
        return float(np.mean(self.predict(parameters, x) == y))

    def example_gradients(self, parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> ExampleGradients:
        """The gradient of every example's loss, by one forward and one backward pass.

        Parameters
        ----------
        parameters : ndarray of shape (num_parameters,)
        x : ndarray of shape (n, features)
        y : ndarray of int of shape (n,)

        Notes
        -----
        **Error**: norms and sums have the rounding of the type of `x` and `parameters`, about 1e-15 relative in
        float64 and 1e-6 in float32; no allowance is added.
        """
        *inputs, logits = self._forward(parameters, x)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = exponentials / exponentials.sum(axis=1, keepdims=True)
        error[np.arange(len(y)), y] -= 1
        errors = [error]
        for (weights, _), value in zip(self.layers(parameters)[:0:-1], inputs[:0:-1], strict=True):
            error = (error @ weights.T) * (value > 0)
            errors.append(error)
        return ExampleGradients(inputs, errors[::-1])
