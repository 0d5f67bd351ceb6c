"""Everybody's loss under Laplace noise: exact compositions of the same norms lie between the bounds."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.files.store import StoreError

NORMS = np.array([0.0, 0.013, 0.555, 0.999, 1.0, 4.0])


def step(norm, noise, rate):
    mechanism = pa.Laplace(noise / min(norm, 1.0))
    return mechanism if rate == 1.0 else pa.PoissonSampled(mechanism, rate)


def ledger_of(parts, rate):
    ledger = pa.LaplaceLedger(NORMS.size, noise_multiplier=10.0, sample_rate=rate, max_grad_norm=1.0)
    for scale, noise, number in parts:
        ledger.record(NORMS * scale, number, noise_multiplier=noise)
    return ledger


def exact(norm, parts, rate):
    return pa.compose([(step(norm * s, b, rate), n) for s, b, n in parts if norm * s > 0.0])


@pytest.mark.parametrize(
    ("parts", "rate"),
    [
        ([(1.0, 10.0, 40), (0.3, 30.0, 100)], 1.0),
        ([(1.0, 10.0, 100)], 0.1),
        ([(1.0, 1.0, 4)], 1.0),  # few steps
        ([(1.0, 1.0, 4)], 0.3),
        ([(0.9, 3.0, 1)], 1.0),  # one
        ([(0.9, 3.0, 1)], 0.3),
    ],
)
def test_exact_compositions_lie_between(parts, rate):
    ledger = ledger_of(parts, rate)
    found, of_delta, pure = ledger.epsilon(1e-6), ledger.delta(0.5), ledger.epsilon(0)
    renyi = ledger.rdp_epsilon(1e-6)
    worst = ledger.worst_case().epsilon(1e-6).upper
    for k, norm in enumerate(NORMS):
        if rate < 1.0 and k in (1, 3, 4) and sum(n for _, _, n in parts) > 1:
            continue  # seconds each
        run = exact(norm, parts, rate)
        truth, delta, largest = run.epsilon(1e-6, tolerance=1e-3), run.delta(0.5, tolerance=1e-3), run.epsilon(0.0)
        assert found.status[k] == pa.Status.CERTIFIED
        assert found.lower[k] <= truth.upper and truth.lower <= found.upper[k]
        assert of_delta.lower[k] <= delta.upper and delta.lower <= of_delta.upper[k]
        assert pure.lower[k] <= largest.upper and largest.lower <= pure.upper[k] <= largest.upper * 1.01 + 0.01 * worst
        assert found.upper[k] - found.lower[k] <= 0.02 * worst
        assert truth.lower <= renyi[k]
    assert found.upper.max() <= worst


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_largest_loss_is_that_of_the_direction(direction):
    parts = [(1.0, 1.0, 4)]
    ledger, run = ledger_of(parts, 0.1), exact(1.0, parts, 0.1)
    found, truth = ledger.epsilon(0, direction), run.epsilon(0.0, direction)
    assert found.lower.max() <= truth.upper and truth.lower <= found.upper.max() <= truth.upper
    assert np.isnan(ledger.epsilon(0, direction, bounds="upper").lower).all()
    with pytest.raises(ValueError, match="direction"):
        ledger.epsilon(0, "sideways")


def test_mu():
    parts = [(1.0, 10.0, 8)]
    found = ledger_of(parts, 1.0).mu(1e-6)
    truth = exact(1.0, parts, 1.0).mu(1e-6)
    assert found.lower[-1] <= truth.upper and truth.lower <= found.upper[-1] <= truth.upper * 1.3
    assert np.all(np.diff(found.upper) >= 0.0)


def test_mu_of_sampled_steps_is_at_most_that_of_the_worst_case():
    parts = [(1.0, 10.0, 1)]
    ledger = ledger_of(parts, 0.1)
    found, worst = ledger.mu(1e-6), ledger.worst_case().mu(1e-6)
    assert found.upper[0] == 0.0 < found.upper[1] < found.upper[2] == worst.upper
    truth = exact(NORMS[2], parts, 0.1).mu(1e-6)
    assert 0.99 * truth.upper <= truth.lower <= found.upper[2]
    text = pa.compare(ledger, 1e-6, min_delta=1e-6, min_group=1).text()
    assert "or the worst case's mu if that is smaller" in " ".join(text.split())


def test_files_and_merging(tmp_path):
    ledger = ledger_of([(1.0, 10.0, 20)], 1.0)
    ledger.save(tmp_path / "laplace.ledger")
    back = pa.LaplaceLedger.load(tmp_path / "laplace.ledger")
    assert back.epsilon(0) == ledger.epsilon(0) and back.steps == 20
    with pytest.raises(StoreError):
        pa.Ledger.load(tmp_path / "laplace.ledger")
    with pytest.raises(ValueError, match="other"):
        back.merge(pa.Ledger(NORMS.size, noise_multiplier=10.0, sample_rate=1.0, max_grad_norm=1.0))
    back.merge(ledger)
    twice = ledger_of([(1.0, 10.0, 40)], 1.0)
    assert np.array_equal(back.epsilon(0).upper, twice.epsilon(0).upper)
    assert isinstance(back.select([2, 5]), pa.LaplaceLedger)
    assert np.array_equal(back.select([5, 2]).epsilon(0).upper, twice.epsilon(0).upper[[5, 2]])
    back.compress()
    assert np.array_equal(back.epsilon(0).upper, twice.epsilon(0).upper)
    assert np.array_equal(back.epsilon(1e-6).upper, twice.epsilon(1e-6).upper)


def test_events():
    table = {"person": ["ann", "bob", "ann"], "sensitivity": [0.3, 1.0, 0.5], "count": [10, 5, 1]}
    ledger = pa.LaplaceLedger.from_events(table, noise_multiplier=4.0, sample_rate=1.0, max_grad_norm=1.0)
    run = pa.compose([(pa.Laplace(4.0 / 0.3), 10), (pa.Laplace(8.0), 1)])
    assert ledger.people.tolist() == ["ann", "bob"]
    found = ledger.epsilon(1e-6)
    assert found.lower[0] <= run.epsilon(1e-6).upper and run.epsilon(1e-6).lower <= found.upper[0]


def test_the_command_line_reads_it(tmp_path):
    from click.testing import CliRunner

    from pld_accountant.cli.commands import main

    ledger = ledger_of([(1.0, 10.0, 20)], 1.0)
    ledger.save(tmp_path / "laplace.ledger")
    out = tmp_path / "epsilons.parquet"
    done = CliRunner().invoke(main, ["epsilon", str(tmp_path / "laplace.ledger"), "--delta", "1e-6", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert np.array_equal(pa.read_results(out).individuals.epsilon.upper, ledger.epsilon(1e-6).upper)


def test_wrong_noise():
    with pytest.raises(ValueError, match="noise_multiplier"):
        pa.LaplaceLedger(2, noise_multiplier=1e-3, sample_rate=1.0, max_grad_norm=1.0)
    ledger = pa.LaplaceLedger(2, noise_multiplier=1.0, sample_rate=1.0, max_grad_norm=1.0)
    with pytest.raises(ValueError, match="noise_multiplier"):
        ledger.record([0.5, 0.5], noise_multiplier=1e-3)
    assert ledger.steps == 0
    assert ledger.epsilon(0).upper.tolist() == [0.0, 0.0] == ledger.epsilon(1e-6).upper.tolist()


def test_without_sampling_the_guarantee_assumes_none():
    ledger = pa.LaplaceLedger(1, noise_multiplier=2.0, sample_rate=1.0, max_grad_norm=1.0)
    ledger.record([1.0])
    assert "Poisson" not in ledger.guarantee.sentence
    ledger.record([1.0], sample_rate=0.1)
    assert "Poisson" in ledger.guarantee.sentence
