"""Imports `pld_accountant.kernels` in a checkout without symbolic links.

The kernels lie in the folder `kernels` beside the package, and ``pld_accountant/kernels`` is a link to it.  Where git
cannot write links, as on Windows, it writes a small file instead; an unpacked source distribution has neither.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

__all__: list[str] = []


def _import_kernels(package: Path) -> None:
    """Import the folder beside the package under the name that the link would give it."""
    spec = spec_from_file_location("pld_accountant.kernels", package.parent / "kernels" / "__init__.py")
    if spec is None or spec.loader is None:
        raise ImportError("pld_accountant.kernels cannot be loaded")
    sys.modules[spec.name] = kernels = module_from_spec(spec)
    spec.loader.exec_module(kernels)


_PACKAGE = Path(__file__).parent
if not (_PACKAGE / "kernels").is_dir():
    _import_kernels(_PACKAGE)
