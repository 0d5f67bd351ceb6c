"""The DP-SGD loop: who is shown, who is sampled, how much is clipped and how much noise is added."""

import numpy as np
import pytest

from pld_accountant.demo.dp_sgd import clipping_factors, train
from pld_accountant.demo.network import ExampleGradients, Network

SETTINGS = {"sample_rate": 0.3, "noise_multiplier": 2.0, "max_grad_norm": 0.5, "learning_rate": 0.1}


class Fixed:
    """Gradients that do not depend on the parameters, one row per example."""

    def __init__(self, rows):
        self.rows = rows
        self.weights = []

    def __call__(self, parameters):
        return self

    @property
    def norms(self):
        return np.linalg.norm(self.rows, axis=1)

    def weighted_sum(self, weights):
        self.weights.append(weights)
        return weights @ self.rows


def test_clipping():
    norms = np.array([0.0, 0.5, 1.0, 4.0])
    assert clipping_factors(norms, 1.0).tolist() == [1.0, 1.0, 1.0, 0.25]
    assert clipping_factors(norms, np.array([0.0, 0.25, 2.0, 0.0])).tolist() == [1.0, 0.5, 1.0, 0.0]


def test_every_example_is_shown_at_every_step_and_a_part_is_sampled():
    rows = np.random.default_rng(0).normal(size=(500, 3)) * 0.5
    gradients, shown = Fixed(rows), []
    train(
        gradients,
        np.zeros(3),
        steps=200,
        rng=np.random.default_rng(1),
        on_step=lambda step, norms: shown.append((step, norms)),
        **SETTINGS,
    )
    assert [step for step, _ in shown] == list(range(200))
    assert all(np.array_equal(norms, gradients.norms) for _, norms in shown)
    weights = np.array(gradients.weights)
    clipped = clipping_factors(gradients.norms, 0.5)
    assert np.all((weights == 0) | (weights == clipped))
    sampled = weights > 0
    # 100,000 draws: five standard deviations of their mean are 0.0072; of each person's own, over 200
    # steps, 0.16.
    assert abs(sampled.mean() - 0.3) < 0.0073
    assert np.abs(sampled.mean(axis=0) - 0.3).max() < 0.17
    # Poisson batches vary in size: the variance is 500 * 0.3 * 0.7 = 105.
    assert 70 < sampled.sum(axis=1).var() < 145


def test_noise_has_the_promised_size_and_the_expected_batch_divides():
    rows = np.zeros((50, 4000))
    moved = train(Fixed(rows), np.zeros(4000), steps=1, rng=np.random.default_rng(2), **SETTINGS)
    # learning rate / (0.3 * 50) times noise of deviation 2.0 * 0.5; 5.6 % is five deviations of the estimate.
    assert np.std(moved) == pytest.approx(0.1 / 15, rel=0.056)


def test_without_noise_it_is_gradient_descent_on_clipped_gradients():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    settings = {**SETTINGS, "sample_rate": 1, "noise_multiplier": 1e-100}
    moved = train(Fixed(rows), np.ones(3), steps=3, rng=np.random.default_rng(0), **settings)
    clipped = rows * np.minimum(1, 0.5 / np.linalg.norm(rows, axis=1))[:, None]
    assert np.allclose(moved, 1 - 3 * 0.1 * clipped.mean(axis=0), rtol=1e-13)


def test_equal_seeds_give_equal_runs_and_the_start_is_left_alone():
    rng = np.random.default_rng(0)
    network, x, y = Network((4, 3, 2)), rng.normal(size=(30, 4)), rng.integers(0, 2, 30)
    start = network.initial(rng)
    before = start.copy()

    def run(seed):
        def gradients(theta):
            return network.example_gradients(theta, x, y)

        return train(gradients, start, steps=5, rng=np.random.default_rng(seed), **SETTINGS)

    assert np.array_equal(run(3), run(3))
    assert not np.array_equal(run(3), run(4))
    assert np.array_equal(start, before)


def test_single_precision_stays_single():
    gradients = ExampleGradients([np.ones((4, 2), np.float32)], [np.ones((4, 1), np.float32)])
    moved = train(lambda _: gradients, np.zeros(3, np.float32), steps=2, rng=np.random.default_rng(0), **SETTINGS)
    assert moved.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sample_rate", 0.0),
        ("sample_rate", 1.5),
        ("noise_multiplier", 0.0),
        ("max_grad_norm", np.nan),
        ("steps", -1),
    ],
)
def test_bad_settings(name, value):
    settings = {"steps": 1, **SETTINGS, name: value}
    with pytest.raises(ValueError, match=name):
        train(Fixed(np.ones((2, 2))), np.zeros(2), rng=np.random.default_rng(0), **settings)
