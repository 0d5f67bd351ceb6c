"""Where the kernels lie when a wheel is built, and the text for package indexes; all else is in setup.cfg."""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithKernels(build_py):
    """Read `pld_accountant.kernels` from the folder `kernels`: the link to it is missing where git cannot write links.

    An entry for it in `package_dir` would do the same for wheels.  Editable installs would then find the package with
    an import hook, which mypy and pyright do not follow, instead of a path.
    """

    def get_package_dir(self, package: str) -> str:
        return "kernels" if package == "pld_accountant.kernels" else super().get_package_dir(package)


def description() -> str:
    """The README without what needs the repository beside it: pictures, their captions, and the targets of links."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n\n(\*[^*\n]+\*\n\n)?", "", text, flags=re.M)
    return re.sub(r"\[([^]]+)\]\((?!https?:)[^)]*\)", r"\1", text)


setup(
    cmdclass={"build_py": BuildWithKernels},
    long_description=description(),
    long_description_content_type="text/markdown",
)
