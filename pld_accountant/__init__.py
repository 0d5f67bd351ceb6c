"""Every person's own privacy loss, certified: individual differential privacy accounting.

>>> import pld_accountant as pa
>>> round(pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).epsilon(1e-5).upper, 6)
1.004113
"""

from .bounds import Bounds, Status
from .composition import Composition, compose
from .guarantee import Guarantee
from .ledger import Ledger
from .mechanisms import Gaussian, SampledGaussian

__version__ = "0.1.0"

__all__ = ["Bounds", "Composition", "Gaussian", "Guarantee", "Ledger", "SampledGaussian", "Status", "compose"]
