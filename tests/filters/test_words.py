"""What filters tell their users: the warning in every `admit`, and the (epsilon, delta) that was asked for."""

import inspect

import pytest

import pld_accountant as pa
from pld_accountant.filters.base import Filter

STEP = {"num_examples": 2, "noise_multiplier": 2.0, "max_grad_norm": 1.0}
TARGETED = {
    "Gaussian": lambda: pa.GaussianFilter.for_epsilon(1.0, 1e-5, **STEP),
    "zCDP": lambda: pa.ZCDPFilter.for_epsilon(1.0, 1e-5, **STEP),
    "zCDP simple": lambda: pa.ZCDPFilter.for_epsilon(1.0, 1e-5, conversion="simple", **STEP),
    "Renyi": lambda: pa.RenyiFilter.for_epsilon(1.0, 1e-5, sample_rate=0.1, **STEP),
    "potential": lambda: pa.PotentialFilter(1.0, 1e-5, sample_rate=0.1, alpha=6.0, **STEP),
    "pure DP": lambda: pa.ApproximateDPFilter(1.0, 1e-5, num_examples=2),
}


@pytest.mark.parametrize("kind", [getattr(pa, name) for name in pa.__all__ if name.endswith("Filter")])
def test_every_admit_warns_of_the_loop_that_leaks(kind):
    warning, words = (inspect.getdoc(one.admit).split("\n\n")[1] for one in (Filter, kind))
    assert "if not mask.any(): break" in warning and "leave\nrefused people out" in warning
    assert words == warning
    assert inspect.getdoc(kind.admit).count(warning) == 1


def test_a_text_of_one_line_gets_the_warning_too():
    class Other(pa.ZCDPFilter):
        def admit(self, norms):
            """Decide."""

    assert inspect.getdoc(Other.admit).startswith("Decide.\n\n**Never** let the mask")


@pytest.mark.parametrize("name", TARGETED)
def test_the_guarantee_leads_with_what_was_asked_for(name, tmp_path):
    keep = TARGETED[name]()
    lead = "Everything released is (epsilon, delta)-DP, epsilon = 1.0, delta = 1e-05, "
    assert keep.guarantee.sentence.startswith(lead)
    assert str(keep.guarantee).startswith(lead)
    keep.save(tmp_path / "keep.npz")
    assert type(keep).load(tmp_path / "keep.npz").guarantee == keep.guarantee
    assert TARGETED[name]().load(tmp_path / "keep.npz").guarantee == keep.guarantee


def test_orders_and_shares_are_told_as_they_are():
    keep = pa.RenyiFilter(0.5, [5 / 3, 4], shares=[1 / 3, 2 / 3], **STEP)
    assert f"(alpha, B) = ({5 / 3!r}, 0.5), (4, 0.5)" in keep.guarantee.sentence
    assert f"from {1 / 3!r} to {2 / 3!r} of it" in keep.guarantee.sentence


@pytest.mark.parametrize(
    ("kind", "budget"), [(pa.GaussianFilter, (0.5,)), (pa.ZCDPFilter, (0.5,)), (pa.RenyiFilter, (0.5, 8))]
)
def test_a_target_that_the_budget_does_not_imply_is_refused(kind, budget):
    assert kind(*budget, **STEP).guarantee.sentence.startswith("Everything released is ")
    with pytest.raises(ValueError, match="target must be implied by the budget"):
        kind(*budget, target=(0.01, 1e-5), **STEP)
