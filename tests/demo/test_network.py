"""Per-example gradients in factors against brute force: finite differences and one example at a time."""

import numpy as np
import pytest

from pld_accountant.demo.network import Network

SIZES = [(5, 3), (5, 4, 3), (6, 5, 4, 3)]


def problem(sizes, examples=11, seed=0):
    rng = np.random.default_rng(seed)
    network = Network(sizes)
    theta = network.initial(rng) + 0.1 * rng.normal(size=network.num_parameters)
    x = rng.normal(size=(examples, sizes[0]))
    return network, theta, x, rng.integers(0, sizes[-1], examples)


def brute_force(network, theta, x, y):
    """Each example's gradient by central differences of its loss.    # (examples, parameters)"""
    step = 1e-6
    gradients = np.empty((len(y), len(theta)))
    for j in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[j] += step
        down[j] -= step
        gradients[:, j] = (network.losses(up, x, y) - network.losses(down, x, y)) / (2 * step)
    return gradients


@pytest.mark.parametrize("sizes", SIZES)
def test_norms_and_sums_equal_brute_force(sizes):
    network, theta, x, y = problem(sizes)
    expected = brute_force(network, theta, x, y)
    found = network.example_gradients(theta, x, y)
    # Central differences: about 1e-10 from their round-off, 1e-12 from their step.
    assert np.allclose(found.norms, np.linalg.norm(expected, axis=1), rtol=1e-7, atol=1e-8)
    for weights in (np.ones(11), np.linspace(-1, 1, 11), np.eye(11)[3], np.zeros(11)):
        assert np.allclose(found.weighted_sum(weights), weights @ expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_norm_is_that_of_the_example_alone(sizes):
    network, theta, x, y = problem(sizes)
    found = network.example_gradients(theta, x, y)
    for i in range(len(y)):
        alone = network.example_gradients(theta, x[i : i + 1], y[i : i + 1])
        gradient = alone.weighted_sum(np.ones(1))
        assert gradient.shape == theta.shape
        assert np.isclose(np.linalg.norm(gradient), found.norms[i], rtol=1e-13)
        assert np.allclose(found.weighted_sum(np.eye(len(y))[i]), gradient, rtol=1e-12, atol=1e-15)


def test_losses_and_gradients_survive_extreme_logits():
    network = Network((2, 3))
    theta = np.array([1e4, -1e4, 0.0, 0.0, 1e4, -1e4, 0.0, 0.0, 0.0])
    x, y = np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([0, 2])
    assert np.array_equal(network.losses(theta, x, y), [0.0, 2e4])
    assert np.all(np.isfinite(network.example_gradients(theta, x, y).norms))


def test_layers_are_views_in_the_order_of_the_parameters():
    network = Network((2, 3, 2))
    theta = np.arange(float(network.num_parameters))
    (w1, b1), (w2, b2) = network.layers(theta)
    assert [a.shape for a in (w1, b1, w2, b2)] == [(2, 3), (3,), (3, 2), (2,)]
    assert np.array_equal(np.concatenate([a.ravel() for a in (w1, b1, w2, b2)]), theta)
    assert all(np.shares_memory(a, theta) for a in (w1, b1, w2, b2))


def test_single_precision_stays_single():
    network, theta, x, y = problem((5, 4, 3))
    single = network.example_gradients(theta.astype(np.float32), x.astype(np.float32), y)
    double = network.example_gradients(theta, x, y)
    assert single.norms.dtype == single.weighted_sum(np.ones(11, np.float32)).dtype == np.float32
    assert np.allclose(single.norms, double.norms, rtol=1e-5)


def test_predictions_and_accuracy():
    network = Network((2, 2))
    theta = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    x = np.array([[2.0, 1.0], [1.0, 2.0], [0.0, 3.0]])
    assert network.predict(theta, x).tolist() == [0, 1, 1]
    assert network.accuracy(theta, x, np.array([0, 1, 0])) == pytest.approx(2 / 3)


@pytest.mark.parametrize("sizes", [(5,), (), (5, 0)])
def test_bad_sizes(sizes):
    with pytest.raises(ValueError, match="at least two positive"):
        Network(sizes)
