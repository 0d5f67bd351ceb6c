"""PyTorch without Opacus: norms and clipped sums of per-example gradients, computed with `torch.func` in micro-batches.

The memory is that of one micro-batch of gradients, whatever the number of examples.  ``examples/mnist_pytorch.py`` is a
whole training loop with caps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

from .individual import BELOW_CAP

__all__ = ["PerExample"]


def _single(rows: Any) -> Any:
    """In single precision at least: half precision would lift clipped norms over their caps by up to a percent."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


class PerExample:
    """Gradients of single examples of a model.

    Parameters
    ----------
    model : torch.nn.Module
        Without layers that mix the examples of a batch, such as batch norm.
    loss : callable
        ``loss(output, target)`` of one example with a batch axis of length 1, a number.
    chunk : int
        Examples in a micro-batch.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> each = PerExample(model, torch.nn.functional.mse_loss)
    >>> inputs, targets = torch.eye(2), model(torch.eye(2)).detach() + torch.tensor([[1.0], [2.0]])
    >>> each.norms(inputs, targets).round(3)  # of the gradient -2 * error * input
    array([2., 4.])
    >>> [float(part.norm()) < 2.0 for part in each.clipped_sum(inputs[:1], targets[:1], [1.5])]
    [True]
    """

    def __init__(self, model: Any, loss: Callable[[Any, Any], Any], *, chunk: int = 256) -> None:
        self._model, self._chunk = model, chunk

        def one(weights: Any, constants: Any, x: Any, y: Any) -> Any:
            output = functional_call(model, (weights, constants), (x.unsqueeze(0),))
            return loss(output, y.unsqueeze(0))

        self._gradients = vmap(grad(one), in_dims=(None, None, 0, 0), randomness="different")

    def _chunks(self, inputs: Any, targets: Any) -> Any:
        weights = {name: p.detach() for name, p in self._model.named_parameters() if p.requires_grad}
        constants = {name: p.detach() for name, p in self._model.named_parameters() if not p.requires_grad}
        constants |= dict(self._model.named_buffers())
        for start in range(0, len(inputs), self._chunk):
            part = slice(start, start + self._chunk)
            found = self._gradients(weights, constants, inputs[part], targets[part])
            rows = [_single(found[name].reshape(len(inputs[part]), -1)) for name in weights]
            yield part, rows, torch.stack([row.norm(dim=1) for row in rows], 1).norm(dim=1)

    def norms(self, inputs: Any, targets: Any) -> np.ndarray:
        """The gradient norm of every example, before clipping: shape (examples,), float64."""
        found = [norms.double().cpu().numpy() for _, _, norms in self._chunks(inputs, targets)]
        return np.concatenate(found) if found else np.empty(0)

    def clipped_sum(self, inputs: Any, targets: Any, caps: Any) -> list[Any]:
        """The sum of the gradients, each clipped at its own cap.

        Parameters
        ----------
        inputs, targets : tensors with an entry for each example
        caps : array_like, shape (examples,)
            0 leaves an example out.

        Returns
        -------
        list of tensors
            In the order and the shapes of the model's trainable parameters.  No example contributes more than its cap,
            and nothing if its gradient is not finite: an error would tell of that example.  In single precision at
            least: add the noise before the sum is rounded to the parameters' half precision.

        Raises
        ------
        ValueError
            If there is not one cap for each example, or a cap is negative or NaN, as the caps of an `IndividualSteps`
            before its first refresh.
        """
        parameters = [p for p in self._model.parameters() if p.requires_grad]
        total = [_single(torch.zeros(p.numel(), dtype=p.dtype, device=p.device)) for p in parameters]
        targets_of_clipping = torch.as_tensor(np.asarray(caps, dtype=np.float64) * BELOW_CAP)
        if targets_of_clipping.shape != (len(inputs),):
            raise ValueError(f"caps must have shape ({len(inputs)},), got {tuple(targets_of_clipping.shape)}")
        if not (targets_of_clipping >= 0.0).all():
            raise ValueError("caps must be at least 0; those of an IndividualSteps are NaN before its first refresh")
        for part, rows, norms in self._chunks(inputs, targets):
            wanted = targets_of_clipping[part].to(norms)
            kept = (wanted > 0.0) & torch.isfinite(norms)
            factors = torch.where(norms > wanted, wanted / norms.clamp_min(torch.finfo(norms.dtype).tiny), 1.0)[kept]
            for number, row in enumerate(rows):
                # a factor of 0 would not leave out what is not finite; a matrix product may round its factors
                total[number] += row[kept].mul_(factors[:, None]).sum(0)
        return [flat.view_as(p) for flat, p in zip(total, parameters, strict=True)]
