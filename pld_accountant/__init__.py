"""Every person's own privacy loss, certified: individual differential privacy accounting.

>>> import pld_accountant as pa
>>> round(pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).epsilon(1e-5).upper, 6)
1.004113
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .bounds import Bounds, Status
from .composition import Composition, compose
from .guarantee import Guarantee
from .ledger import Ledger
from .mechanisms import Gaussian, SampledGaussian

if TYPE_CHECKING:
    from .calibration import calibrate_noise_multiplier, calibrate_sample_rate, calibrate_steps
    from .descent import descend
    from .filters import ApproximateDPFilter, GaussianFilter, RenyiFilter, ZCDPFilter
    from .odometers import GaussianOdometer, RenyiOdometer
    from .pld_filter import PLDFilter
    from .queries import LinearQueries

__version__ = "0.1.0"

__all__ = [
    "ApproximateDPFilter",
    "Bounds",
    "Composition",
    "Gaussian",
    "GaussianFilter",
    "GaussianOdometer",
    "Guarantee",
    "Ledger",
    "LinearQueries",
    "PLDFilter",
    "RenyiFilter",
    "RenyiOdometer",
    "SampledGaussian",
    "Status",
    "ZCDPFilter",
    "calibrate_noise_multiplier",
    "calibrate_sample_rate",
    "calibrate_steps",
    "compose",
    "descend",
]

# Made available when first used: the kernels of most need numba, whose import alone takes most of a second.
_LATER = {
    "ApproximateDPFilter": "filters",
    "GaussianFilter": "filters",
    "RenyiFilter": "filters",
    "ZCDPFilter": "filters",
    "GaussianOdometer": "odometers",
    "RenyiOdometer": "odometers",
    "LinearQueries": "queries",
    "calibrate_noise_multiplier": "calibration",
    "calibrate_sample_rate": "calibration",
    "calibrate_steps": "calibration",
    "PLDFilter": "pld_filter",
    "descend": "descent",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LATER[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LATER))
