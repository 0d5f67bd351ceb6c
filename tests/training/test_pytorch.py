"""Per-example gradients with torch.func."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pld_accountant.training.pytorch import PerExample  # noqa: E402


@pytest.fixture
def problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, 3))
    model[0].bias.requires_grad_(False)
    return model, torch.randn(50, 1, 6, 6) * torch.linspace(0, 3, 50)[:, None, None, None], torch.arange(50) % 3


def by_autograd(model, x, y):
    rows = []
    for one, target in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(one[None]), target[None])
        found = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows).double().numpy()


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
def test_norms_and_clipped_sums_equal_those_of_autograd(problem, chunk):
    model, x, y = problem
    each = PerExample(model, nn.functional.cross_entropy, chunk=chunk)
    rows = by_autograd(model, x, y)
    lengths = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(each.norms(x, y), lengths, rtol=1e-5)
    caps = np.random.default_rng(0).uniform(0, 1.5, 50) * lengths
    caps[3] = 0
    total = torch.cat([part.flatten() for part in each.clipped_sum(x, y, caps)]).double().numpy()
    expected = (rows * np.minimum(1, caps / lengths)[:, None]).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-3, atol=1e-4)


def test_no_contribution_is_longer_than_its_cap(problem):
    model, x, y = problem
    each = PerExample(model, nn.functional.cross_entropy)
    for person, norm in enumerate(each.norms(x, y)):
        for cap in (0.0, norm / 3, norm, 2 * norm):
            parts = each.clipped_sum(x[person : person + 1], y[person : person + 1], [cap])
            assert np.linalg.norm(torch.cat([p.flatten() for p in parts]).double()) <= min(cap, norm * (1 + 1e-6))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_half_precision_keep_their_caps(dtype):
    """Rounded to half precision, a clipped gradient is up to a percent longer."""
    torch.manual_seed(0)
    model = nn.Linear(300, 1, bias=False).to(dtype)
    each = PerExample(model, lambda output, target: (output * target).sum())
    x = torch.randn(50, 300).to(dtype)
    exact = x.double().numpy()
    lengths = np.linalg.norm(exact, axis=1)
    np.testing.assert_allclose(each.norms(x, torch.ones(50, dtype=dtype)), lengths, rtol=1e-6)
    caps = lengths * np.random.default_rng(0).uniform(0.1, 1.0, 50)
    for person in range(50):
        some = slice(person, person + 1)
        (alone,) = each.clipped_sum(x[some], torch.ones(1, dtype=dtype), caps[some])
        assert np.linalg.norm(alone.double()) <= caps[person]
    (total,) = each.clipped_sum(x, torch.ones(50, dtype=dtype), caps)
    expected = (exact * (caps / lengths)[:, None]).sum(axis=0)
    assert total.dtype == torch.float32
    np.testing.assert_allclose(total.numpy()[0], expected, rtol=2e-5, atol=1e-5)


def test_an_empty_batch_and_bad_input(problem):
    model, x, y = problem
    each = PerExample(model, nn.functional.cross_entropy)
    assert all(not part.any() for part in each.clipped_sum(x[:0], y[:0], []))
    with pytest.raises(ValueError, match="caps must have shape"):
        each.clipped_sum(x, y, np.ones(49))
    for bad in (np.nan, -1.0):
        with pytest.raises(ValueError, match="caps must be at least 0"):
            each.clipped_sum(x, y, np.where(np.arange(50) == 3, bad, 1.0))


@pytest.mark.parametrize("cap", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gradient_without_a_finite_norm_contributes_nothing(problem, cap, value):
    model, x, y = problem
    each, caps = PerExample(model, nn.functional.cross_entropy), np.ones(50)
    others = [part.clone() for part in each.clipped_sum(x[1:], y[1:], caps[1:])]
    x, caps[0] = x.clone(), cap
    x[0] = value
    assert not np.isfinite(each.norms(x[:1], y[:1])).any()
    for part, other in zip(each.clipped_sum(x, y, caps), others, strict=True):
        np.testing.assert_allclose(part.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)


def test_a_cap_of_0_leaves_out_what_has_a_norm_of_0_by_underflow():
    model = nn.Linear(1, 1, bias=False)
    each = PerExample(model, lambda output, target: (output * target).sum())
    (part,) = each.clipped_sum(torch.ones(1, 1), torch.full((1, 1), 1e-30), [0.0])
    assert each.norms(torch.ones(1, 1), torch.full((1, 1), 1e-30))[0] < 1e-29 and float(part) == 0.0
