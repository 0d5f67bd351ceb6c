"""`composition_of`: histories of Opacus and privacy random variables of prv-accountant."""

from types import SimpleNamespace

import pytest

import pld_accountant as pa
from pld_accountant.training.histories import composition_of

STEPS = [(2.0, 0.01, 300), (1.5, 0.02, 100), (2.0, 0.01, 50)]


def same(one, other):
    return [(b.lower, b.upper) for b in (one.epsilon(1e-5), one.delta(1.0))] == [
        (b.lower, b.upper) for b in (other.epsilon(1e-5), other.delta(1.0))
    ]


def test_histories_of_opacus():
    expected = pa.compose([(pa.SampledGaussian(2.0, 0.01), 350), (pa.SampledGaussian(1.5, 0.02), 100)])
    state = {"history": STEPS, "mechanism": "rdp"}  # what an accountant's state_dict() returns
    checkpoint = {"module_state_dict": {}, "privacy_accountant_state_dict": state}  # PrivacyEngine.save_checkpoint
    for given in (STEPS, [list(step) for step in STEPS], SimpleNamespace(history=STEPS), state, checkpoint):
        assert same(composition_of(given), expected)
    assert composition_of(SimpleNamespace(history=[])).steps == 0


@pytest.mark.parametrize(
    ("given", "numbers", "words"),
    [
        (3.0, None, "must have a history"),
        ("run.pt", None, r"load it first, as by torch.load\('run.pt'\)"),
        (SimpleNamespace(), None, "must have a history"),
        ({"model": 1}, None, r"must have a history.*got the keys \['model'\]"),
        ([(2.0, 0.01)], None, "history must hold"),
        ([(0.0, 0.01, 3)], None, "noise_multiplier"),
        ([(2.0, 1.01, 3)], None, "sample_rate"),
        ([(2.0, 0.01, 2.5)], None, "steps"),
        (STEPS, [1, 2, 3], "must not be given"),
        ([SimpleNamespace(mu=1.0)], None, "must be given"),
        ([SimpleNamespace(mu=1.0)], [1, 2], "for each of 1"),
        ([SimpleNamespace(mu=1.0)], 1, "privacy random variable"),
    ],
)
def test_what_is_no_history_is_refused(given, numbers, words):
    with pytest.raises(ValueError, match=words):
        composition_of(given, numbers)


def test_variables_of_prv_accountant():
    prv = pytest.importorskip("prv_accountant")
    pairs = [
        (prv.PoissonSubsampledGaussianMechanism(0.01, 2.0), pa.SampledGaussian(2.0, 0.01)),
        (prv.GaussianMechanism(4.0, 2.0), pa.Gaussian(2.0)),
        (prv.LaplaceMechanism(0.25), pa.Laplace(4.0)),
        (prv.PureDPMechanism(0.125), pa.ApproximateDP(0.125, 0.0)),
        (prv.ApproximateDPMechanism(0.125, 1e-9), pa.ApproximateDP(0.125, 1e-9)),
    ]
    for variable, mechanism in pairs:
        assert same(composition_of([variable], 3), pa.compose([(mechanism, 3)]))
    variables, counts = [pair[0] for pair in pairs], [5, 1, 2, 3, 1]
    expected = pa.compose([(pair[1], n) for pair, n in zip(pairs, counts, strict=True)])
    assert same(composition_of(variables, counts), expected)


def test_accountants_of_prv_accountant():
    prv = pytest.importorskip("prv_accountant")
    from prv_accountant.dpsgd import DPSGDAccountant

    run = DPSGDAccountant(2.0, 0.01, 500, eps_error=0.01, delta_error=1e-10)
    low, _, high = run.compute_epsilon(1e-5, 500)
    found = composition_of(run).epsilon(1e-5)
    assert low <= found.upper
    assert found.lower <= high
    assert same(composition_of(run, 100), pa.compose([(pa.SampledGaussian(2.0, 0.01), 100)]))
    variable = prv.PoissonSubsampledGaussianMechanism(0.01, 2.0)
    mixed = prv.PRVAccountant([variable, prv.LaplaceMechanism(0.1)], 0.05, 1e-9, max_self_compositions=[10, 2])
    assert same(composition_of(mixed), pa.compose([(pa.SampledGaussian(2.0, 0.01), 10), (pa.Laplace(10.0), 2)]))


def test_other_variables_are_refused():
    prv = pytest.importorskip("prv_accountant")

    class Mine(prv.PrivacyRandomVariable):
        def cdf(self, t):
            return t

    with pytest.raises(ValueError, match="prv-accountant"):
        composition_of([Mine()], 1)
