"""Why no filter here drops a person when the epsilon of their realised losses reaches the budget.

The rule is simulated by convolving privacy loss distributions on a grid.  After a first stage the adversary
looks at the realised loss and picks one of two continuations, each of which alone spends exactly (epsilon0,
1e-5); the rule sees nothing wrong with either, and the adaptive run exceeds 1e-5 by a fifth.
"""

import numpy as np
import pytest
from scipy.special import ndtr

from pld_accountant.filters.potential import PotentialFilter

N, STEP = 2**17, 2.5e-4
LOSSES = (np.arange(N) - N // 4) * STEP
RATE, DELTA, EPSILON = 0.03, 1e-5, 3.3634


def survival(losses, sigma):
    """P(loss > s) of one sampled Gaussian step, removal: the larger of the two directions here."""
    with np.errstate(divide="ignore", invalid="ignore"):
        x = sigma**2 * np.log((np.exp(losses) - (1 - RATE)) / RATE) + 0.5
    x = np.where(losses > np.log1p(-RATE), x, -np.inf)
    return (1 - RATE) * ndtr(-x / sigma) + RATE * ndtr((1 - x) / sigma)


def transform(sigma):
    """Discrete Fourier transform of one step's loss; cells are split so that E[exp(-loss)] is kept."""
    nodes = np.linspace(-0.5, 0.5, 9)[:, None] * STEP
    mass = survival(LOSSES - STEP / 2, sigma) - survival(LOSSES + STEP / 2, sigma)
    fine = -np.diff(survival(LOSSES + nodes, sigma), axis=0)
    middle = (nodes[1:] + nodes[:-1]) / 2
    tilt = np.divide((fine * np.exp(-middle)).sum(axis=0), mass, out=np.ones(N), where=mass > 0)
    # Mass w goes to the neighbour: (1 - w) + w exp(-+ STEP) = tilt.
    up = np.where(tilt < 1, (1 - tilt) / -np.expm1(-STEP), 0)
    down = np.where(tilt > 1, (tilt - 1) / np.expm1(STEP), 0)
    out = mass * (1 - up - down)
    out[1:] += (mass * up)[:-1]
    out[:-1] += (mass * down)[1:]
    return np.fft.rfft(np.roll(out, -(N // 4)))


def distribution(spectrum):
    return np.roll(np.fft.irfft(spectrum, N), N // 4)


def delta_after(loss, spectrum):
    """delta at EPSILON of a continuation, for each loss already realised: a correlation."""
    weight = np.maximum(-np.expm1(EPSILON - LOSSES), 0)
    value = np.roll(np.fft.irfft(np.fft.rfft(np.roll(weight, -(N // 4))) * np.conj(spectrum), N), N // 4)
    inside = (loss > LOSSES[0] / 2) & (loss < LOSSES[-1] / 2)
    return np.where(inside, np.clip(value, 0, 1), (loss > 0).astype(float))


def test_the_naive_rule_is_broken_by_an_adaptive_run():
    one = transform(1.0)
    first = distribution(one**150)
    same = delta_after(LOSSES, one**150)
    gentle = delta_after(LOSSES, transform(8.0) ** 21803)
    assert first @ same == pytest.approx(DELTA, rel=0.01)
    assert first @ gentle == pytest.approx(DELTA, rel=0.01)
    adaptive = first @ np.maximum(same, gentle)
    assert adaptive == pytest.approx(1.21e-5, rel=0.01)


def test_the_proven_filter_holds_against_the_same_adversary():
    """The same run under `PotentialFilter`: what is left after 150 steps buys fewer steps of either kind."""
    keep = PotentialFilter(
        EPSILON, DELTA, num_examples=2, noise_multiplier=1.0, sample_rate=RATE, max_grad_norm=1.0, alpha=4.0
    )
    assert keep.admit([1.0, 1.0], steps=150).tolist() == [150, 150]
    rough, gentle = keep.admit([1.0, 0.125], steps=10**6).tolist()
    assert 100 < rough < 150 and 5_000 < gentle < 21803
    one = transform(1.0)
    first = distribution(one**150)
    better = np.maximum(delta_after(LOSSES, one**rough), delta_after(LOSSES, transform(8.0) ** gentle))
    assert 0.5 * DELTA < first @ better <= DELTA
