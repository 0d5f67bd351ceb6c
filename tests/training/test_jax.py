"""Per-example gradients in JAX, and the transformation in the style of optax."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402

from pld_accountant.training.jax import (  # noqa: E402
    clip_each_and_add_noise,
    clipped_sum,
    gradient_norms,
    norms_of,
)


def loss(parameters, x, y):
    return jnp.sum((jnp.tanh(x @ parameters["a"]) @ parameters["b"] - y) ** 2)


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    parameters = {"a": jnp.asarray(rng.normal(size=(4, 3))), "b": jnp.asarray(rng.normal(size=(3, 2)))}
    return parameters, jnp.asarray(rng.normal(size=(40, 4))), jnp.asarray(rng.normal(size=(40, 2)))


def rows(parameters, x, y):
    found = [jax.grad(loss)(parameters, one, target) for one, target in zip(x, y, strict=True)]
    return np.array([np.concatenate([np.asarray(g[name]).ravel() for name in "ab"]) for g in found], dtype=np.float64)


def flat(tree):
    return np.concatenate([np.asarray(tree[name], dtype=np.float64).ravel() for name in "ab"])


@pytest.mark.parametrize("chunk", [1, 7, 40, 1000])
def test_norms_equal_those_of_single_gradients(problem, chunk):
    expected = np.linalg.norm(rows(*problem), axis=1)
    np.testing.assert_allclose(gradient_norms(loss, *problem, chunk=chunk), expected, rtol=1e-5)


def test_the_clipped_sum_and_every_contribution(problem):
    parameters, x, y = problem
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, x, y)
    each = rows(*problem)
    lengths = np.linalg.norm(each, axis=1)
    caps = np.random.default_rng(1).uniform(0, 1.5, 40) * lengths
    caps[5] = 0
    expected = (each * np.minimum(1, caps / lengths)[:, None]).sum(axis=0)
    np.testing.assert_allclose(flat(clipped_sum(gradients, jnp.asarray(caps))), expected, rtol=1e-3, atol=1e-3)
    for person in range(40):
        alone = jax.tree.map(lambda leaf, person=person: leaf[person : person + 1], gradients)
        for cap in (0.0, lengths[person] / 3, lengths[person], 5 * lengths[person]):
            assert np.linalg.norm(flat(clipped_sum(alone, jnp.asarray([cap])))) <= cap
    assert norms_of(gradients).shape == (40,)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_gradients_of_half_precision_keep_their_caps(kind):
    """Rounded to half precision, a clipped gradient is up to a percent longer, and noise has gaps."""
    rng = np.random.default_rng(0)
    gradients = jnp.asarray(rng.normal(size=(50, 300)), dtype=kind)
    exact = np.asarray(gradients, dtype=np.float64)
    lengths = np.linalg.norm(exact, axis=1)
    np.testing.assert_allclose(norms_of([gradients]), lengths, rtol=1e-6)
    caps = jnp.asarray(lengths * rng.uniform(0.1, 1.0, 50))
    for person in range(50):
        alone = clipped_sum(gradients[person : person + 1], caps[person : person + 1])
        assert np.linalg.norm(np.asarray(alone, dtype=np.float64)) <= caps[person]
    total = clipped_sum(gradients, caps)
    expected = (exact * (np.asarray(caps, dtype=np.float64) / lengths)[:, None]).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=2e-5, atol=1e-5)
    transform = clip_each_and_add_noise(1e-6, 100.0, 1.0, jax.random.key(0))
    noisy, _ = transform.update(gradients, transform.init(None), caps=caps)
    assert total.dtype == "float32" and noisy.dtype == kind
    np.testing.assert_allclose(np.asarray(noisy, dtype=np.float64), expected, rtol=1e-2, atol=1e-2)


def test_products_are_exact_on_accelerators():
    """On GPUs and TPUs the default may be half precision: see jax.default_matmul_precision."""
    traced = str(jax.make_jaxpr(clipped_sum)(jnp.ones((2, 3)), jnp.ones(2)))
    assert traced.count("dot_general") == traced.count("HIGHEST, Precision.HIGHEST") == 1


def test_the_transformation_adds_noise_of_the_clipping_norm_and_divides_by_a_constant(problem):
    parameters, x, y = problem
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, x, y)
    for caps in (jnp.zeros(40), jnp.full(40, 2.0), jnp.full(40, 1e9)):
        transform = clip_each_and_add_noise(3.0, 2.0, 50.0, jax.random.key(0))
        state, found = transform.init(parameters), []
        update = jax.jit(transform.update)
        for _ in range(2000):
            noisy, state = update(gradients, state, caps=caps)
            found.append(flat(noisy))
        centre = flat(clipped_sum(gradients, jnp.minimum(caps, 2.0))) / 50
        # 2000 draws of 18 coordinates: the deviation is known to 0.4 %, each mean to 0.003
        assert np.std(np.array(found) - centre) == pytest.approx(3.0 * 2.0 / 50, rel=0.02)
        np.testing.assert_allclose(np.mean(found, axis=0), centre, atol=0.015)


def test_it_chains_with_an_optimizer(problem):
    parameters, x, y = problem
    optimizer = optax.chain(clip_each_and_add_noise(1e-6, 1.0, 40.0, jax.random.key(1)), optax.sgd(0.1))
    state = optimizer.init(parameters)
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, x, y)
    updates, state = optimizer.update(gradients, state, parameters, caps=jnp.ones(40))
    moved = optax.apply_updates(parameters, updates)
    assert sum(loss(moved, *one) for one in zip(x, y, strict=True)) < sum(
        loss(parameters, *one) for one in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("cap", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_a_gradient_without_a_finite_norm_contributes_nothing(cap, value):
    gradients = {"a": jnp.array([[value, 1.0], [0.3, 0.4]]), "b": jnp.array([[[1.0]], [[0.0]]])}
    found = clipped_sum(gradients, jnp.array([cap, 1.0]))
    np.testing.assert_allclose(flat(found), [0.3, 0.4, 0.0], rtol=1e-6)


@pytest.mark.parametrize("cap", [0.0, -1.0, np.nan, -np.inf])
def test_a_cap_that_is_not_above_0_leaves_an_example_out(cap):
    gradients = {"a": jnp.array([[3.0, 4.0], [1e-30, 0.0], [0.3, 0.4]]), "b": jnp.zeros((3, 1))}
    assert (
        flat(clipped_sum(gradients, jnp.array([cap, cap, 1.0]))).tolist()
        == flat(clipped_sum(gradients, jnp.array([0.0, 0.0, 1.0]))).tolist()
    )
    np.testing.assert_allclose(flat(clipped_sum(gradients, jnp.array([cap, cap, 1.0]))), [0.3, 0.4, 0.0], rtol=1e-6)
    transform = clip_each_and_add_noise(1e-6, 1.0, 1.0, jax.random.key(0))
    noisy, _ = transform.update(gradients, transform.init(None), caps=jnp.full(3, cap))
    assert np.abs(flat(noisy)).max() < 1e-4


@pytest.mark.parametrize("numbers", [(0.0, 1.0, 9), (-1.0, 1.0, 9), (np.nan, 1.0, 9), (1.0, -1.0, 9), (1.0, 1.0, 0)])
def test_numbers_that_give_no_privacy_are_refused(numbers):
    with pytest.raises(ValueError, match="must be"):
        clip_each_and_add_noise(*numbers, jax.random.key(0))
    with pytest.raises(TypeError):
        clip_each_and_add_noise(1.0, 1.0, 9, 17)
