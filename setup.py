"""The one build step that setup.cfg cannot say: modules are made from proto/ at install.

Must not import peloton, which is not installed yet when this runs.
"""

import runpy
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
# They need files of the checkout that a wheel does not have: examples/.
NOT_IN_WHEEL = (("peloton.processes", "demo"),)


class BuildWithProtos(build_py):
    """Runs for wheels and for editable installs alike; both call build_py."""

    def run(self) -> None:
        runpy.run_path(str(ROOT / "script" / "protos"))["make"]()
        # The list of packages was drawn up before these existed; a wheel would miss them.
        self.packages = self.distribution.packages = find_packages(str(ROOT), include=["peloton*"])
        self.__dict__.pop("data_files", None)
        if not self.editable_mode:  # else a wheel has also what is gone since the one before
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

    def find_package_modules(self, package, package_dir):
        """The modules of a package that are built."""
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] not in NOT_IN_WHEEL]


setup(cmdclass={"build_py": BuildWithProtos})
