"""The one build step that setup.cfg cannot say: modules are made from proto/ at install.

Must not import peloton, which is not installed yet when this runs.
"""

import runpy
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithProtos(build_py):
    """Runs for wheels and for editable installs alike; both call build_py."""

    def run(self) -> None:
        runpy.run_path(str(ROOT / "script" / "protos"))["make"]()
        # The list of packages was drawn up before these existed; a wheel would miss them.
        self.packages = self.distribution.packages = find_packages(str(ROOT), include=["peloton*"])
        self.__dict__.pop("data_files", None)
        super().run()


setup(cmdclass={"build_py": BuildWithProtos})
