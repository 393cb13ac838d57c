"""What setup.cfg says of the package: its name, its version, and that its libraries are used.

script/setup installs, and script/newcomer on a clean machine.
"""

from __future__ import annotations

import ast
import configparser
import re
from distutils.core import run_setup
from pathlib import Path

import pytest
import setuptools  # noqa: F401 - first, it provides distutils

import peloton
from tests.house.tree import hold, read

# What is imported under another name than the one it is installed by.
MODULES = {
    "cassandra-driver": "cassandra",
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "grpcio-status": "grpc_status",
    "prometheus-client": "prometheus_client",
    "protobuf": "google",
    "PyYAML": "yaml",
}


def package(root: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.read(root / "setup.cfg")
    return found


def requirements(text: str) -> list[str]:
    """The names of some requirements, without their versions."""
    return [re.split(r"[<>=\[ ]", line)[0] for line in text.split("\n") if line]


def imported() -> set[str]:
    """The first part of every module that the package imports."""
    found = set()
    for module in read("peloton"):
        for node in module.walk():
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found


def test_every_dependency_is_imported(root: Path) -> None:
    said = package(root)
    extras = said["options.extras_require"]
    needed = said["options"]["install_requires"] + extras["fleet"] + extras["executor"]
    names = [MODULES.get(name, name) for name in requirements(needed)]
    assert len(names) > 10
    found = imported()
    hold(
        f"setup.cfg requires {name}, which peloton imports nowhere: remove it"
        for name in names
        if name not in found
    )


def test_no_text_leads_to_the_package_of_that_name_on_pypi(root: Path) -> None:
    """`peloton` there is somebody else's: neither the name nor an extra may lead to it."""
    assert package(root)["metadata"]["name"] == "peloton-scheduler"
    texts = [root / "README.md", root / "setup.cfg", *(root / "docs").glob("*.md")]
    texts += [root / module.path for module in read("peloton")]
    texts += [path for path in (root / "script").iterdir() if path.is_file()]
    extra = re.compile(r"\bpeloton\[(fleet|test)")
    hold(
        f"{path.relative_to(root)} says peloton[...], another project on PyPI: say -e '.[fleet]'"
        for path in texts
        if extra.search(path.read_text(encoding="utf-8"))
    )


def test_the_extra_is_installed_from_the_checkout() -> None:
    assert "-e '.[fleet]'" in peloton.INSTALL_FLEET


def test_a_wheel_has_what_is_generated_and_the_types_and_nothing_old(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    build = run_setup(str(root / "setup.py"), stop_after="init").get_command_obj("build_py")
    build.build_lib = str(tmp_path)
    (tmp_path / "peloton").mkdir()
    (tmp_path / "peloton" / "gone.py").touch()
    build.ensure_finalized()
    build.run()
    built = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    wanted = {"py.typed", "api/v0/job/job_pb2.py", "api/v0/job/job_pb2.pyi", "ops/v1/ops_pb2.py"}
    assert {f"peloton/{name}" for name in wanted} <= built
    assert {name.partition("/")[0] for name in built} == {"peloton"}
    assert not {"peloton/gone.py", "peloton/processes/demo.py"} & built


def test_modules_that_need_the_checkout_are_not_in_a_wheel(root: Path) -> None:
    build = run_setup(str(root / "setup.py"), stop_after="init").get_command_obj("build_py")
    folder = root / "peloton" / "processes"
    built = {name for _, name, _ in build.find_package_modules("peloton.processes", str(folder))}
    needing = {path.stem for path in folder.glob("*.py") if '"examples"' in path.read_text()}
    assert needing == {"demo"}
    assert "minicluster" in built and not built & needing
