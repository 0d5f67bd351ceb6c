"""Every person's own privacy loss, certified: individual differential privacy accounting.

>>> import pld_accountant as pa
>>> round(pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).epsilon(1e-5).upper, 6)
1.004113
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import checkout as _checkout  # noqa: F401  # first, because it finds the kernels
from .composition import Composition, compose
from .ledger import Ledger
from .mechanisms.bounded_range import ExponentialMechanism
from .mechanisms.density_pair import DensityPair
from .mechanisms.discrete import DiscretePair
from .mechanisms.fixed_size import FixedSizeBatch
from .mechanisms.gaussian import Gaussian
from .mechanisms.gaussian_mixture import GaussianMixture, GroupGaussian, ReplaceOneSampledGaussian
from .mechanisms.laplace import Laplace
from .mechanisms.loss_distribution import LossDistribution
from .mechanisms.matrix import BandedMatrix, TreeAggregation
from .mechanisms.random_allocation import RandomAllocation
from .mechanisms.renyi_boxes import RenyiDP, ZeroConcentratedDP
from .mechanisms.repeated_selection import RepeatedSelection
from .mechanisms.sampled_gaussian import SampledGaussian
from .mechanisms.statistics import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
)
from .mechanisms.truncated_poisson import TruncatedPoisson
from .results import Bounds, Guarantee, Method, Status
from .version import __version__

if TYPE_CHECKING:
    from .adaptive.descent import descend
    from .adaptive.linear_queries import LinearQueries
    from .calibration import (
        calibrate,
        calibrate_attack_success,
        calibrate_group_clipping_norms,
        calibrate_group_sample_rates,
        calibrate_noise_multiplier,
        calibrate_sample_rate,
        calibrate_steps,
    )
    from .filters.gaussian import GaussianFilter, ZCDPFilter
    from .filters.odometers import GaussianOdometer, PotentialOdometer, RenyiOdometer
    from .filters.pld import PLDFilter
    from .filters.potential import PotentialFilter
    from .filters.pure_dp import ApproximateDPFilter, PureDPFilter
    from .filters.renyi import RenyiFilter
    from .laplace_ledger import LaplaceLedger
    from .mechanism_ledger import MechanismLedger
    from .partitions import PartitionJob
    from .publishing import Release, release
    from .report.calls import draw_histogram, summarise, write_report, write_results
    from .report.comparison import compare
    from .report.reading import read_results

__all__ = [
    "ApproximateDP",
    "ApproximateDPFilter",
    "BandedMatrix",
    "Bounds",
    "Composition",
    "DensityPair",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscretePair",
    "ExponentialMechanism",
    "FixedSizeBatch",
    "Gaussian",
    "GaussianFilter",
    "GaussianMixture",
    "GaussianOdometer",
    "GroupGaussian",
    "Guarantee",
    "Laplace",
    "LaplaceLedger",
    "Ledger",
    "LinearQueries",
    "LossDistribution",
    "MechanismLedger",
    "Method",
    "PLDFilter",
    "PartitionJob",
    "PermuteAndFlip",
    "PoissonSampled",
    "PotentialFilter",
    "PotentialOdometer",
    "PureDP",
    "PureDPFilter",
    "RandomAllocation",
    "RandomizedResponse",
    "Release",
    "RenyiDP",
    "RenyiFilter",
    "RenyiOdometer",
    "RepeatedSelection",
    "ReplaceOneSampledGaussian",
    "SampledGaussian",
    "Status",
    "TreeAggregation",
    "TruncatedPoisson",
    "ZCDPFilter",
    "ZeroConcentratedDP",
    "__version__",
    "calibrate",
    "calibrate_attack_success",
    "calibrate_group_clipping_norms",
    "calibrate_group_sample_rates",
    "calibrate_noise_multiplier",
    "calibrate_sample_rate",
    "calibrate_steps",
    "compare",
    "compose",
    "descend",
    "draw_histogram",
    "read_results",
    "release",
    "summarise",
    "write_report",
    "write_results",
]

# Names that are imported on first use: most need numba or matplotlib, which take about a second to import.
_LATER = {
    "LaplaceLedger": "laplace_ledger",
    "MechanismLedger": "mechanism_ledger",
    "ApproximateDPFilter": "filters.pure_dp",
    "PureDPFilter": "filters.pure_dp",
    "GaussianFilter": "filters.gaussian",
    "RenyiFilter": "filters.renyi",
    "ZCDPFilter": "filters.gaussian",
    "GaussianOdometer": "filters.odometers",
    "PotentialOdometer": "filters.odometers",
    "RenyiOdometer": "filters.odometers",
    "LinearQueries": "adaptive.linear_queries",
    "calibrate": "calibration",
    "calibrate_attack_success": "calibration",
    "calibrate_group_clipping_norms": "calibration",
    "calibrate_group_sample_rates": "calibration",
    "calibrate_noise_multiplier": "calibration",
    "calibrate_sample_rate": "calibration",
    "calibrate_steps": "calibration",
    "PLDFilter": "filters.pld",
    "PotentialFilter": "filters.potential",
    "descend": "adaptive.descent",
    "compare": "report.comparison",
    "draw_histogram": "report.calls",
    "PartitionJob": "partitions",
    "Release": "publishing",
    "read_results": "report.reading",
    "release": "publishing",
    "summarise": "report.calls",
    "write_report": "report.calls",
    "write_results": "report.calls",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LATER[name]}", __name__), name)


def __dir__() -> list[str]:
    helpers = {"Any", "TYPE_CHECKING", "import_module"}
    return sorted((set(globals()) | set(_LATER)) - helpers)
