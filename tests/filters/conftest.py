"""The filters that the tests of this folder go through, each with five people."""

import pytest

from pld_accountant.filters.gaussian import GaussianFilter, ZCDPFilter
from pld_accountant.filters.potential import PotentialFilter
from pld_accountant.filters.pure_dp import ApproximateDPFilter, PureDPFilter
from pld_accountant.filters.renyi import RenyiFilter

PEOPLE = 5
MAKERS = {
    "gaussian": lambda **k: GaussianFilter(
        0.5, **{"num_examples": PEOPLE, "noise_multiplier": 4.0, "max_grad_norm": 2.0, **k}
    ),
    "zcdp": lambda **k: ZCDPFilter(
        0.125, **{"num_examples": PEOPLE, "noise_multiplier": 4.0, "max_grad_norm": 2.0, **k}
    ),
    "renyi": lambda **k: RenyiFilter(
        1.0, 8, **{"num_examples": PEOPLE, "noise_multiplier": 4.0, "max_grad_norm": 2.0, **k}
    ),
    "orders": lambda **k: RenyiFilter(
        [0.25, 1.0, 2.5],
        [2, 8, 16.5],
        **{"num_examples": PEOPLE, "noise_multiplier": 4.0, "max_grad_norm": 2.0, **k},
    ),
    "sampled": lambda **k: RenyiFilter(
        [0.002, 0.02],
        [2, 8.5],
        **{
            "num_examples": PEOPLE,
            "noise_multiplier": 1.0,
            "max_grad_norm": 2.0,
            "sample_rate": 0.02,
            **k,
        },
    ),
    "potential": lambda **k: PotentialFilter(
        1.0,
        1e-5,
        **{
            "num_examples": PEOPLE,
            "noise_multiplier": 2.0,
            "max_grad_norm": 2.0,
            "sample_rate": 0.03,
            "alpha": 8.0,
            **k,
        },
    ),
    "pure": lambda **k: ApproximateDPFilter(1.0, 1e-5, **{"num_examples": PEOPLE, **k}),
    "sum of pure": lambda **k: PureDPFilter(4.0, **{"num_examples": PEOPLE, **k}),
}


@pytest.fixture(scope="session")
def makers():
    """A function for each kind of filter, from parameters that differ to a filter."""
    return MAKERS


@pytest.fixture(params=MAKERS.values(), ids=MAKERS.keys(), scope="session")
def make(request):
    """Each of these functions."""
    return request.param
