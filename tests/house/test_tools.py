"""Runs ruff, mypy and import-linter, so that one command and one verdict cover them too.

pyproject.toml and .importlinter configure them, for editors as well.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import PURE, ROOT, hold, read

BIN = Path(sys.executable).parent


def run(*command: str, where: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Colours and boxes would fill a report that is read in a log.
    env = os.environ | {"NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": str(where)}
    return subprocess.run(
        command, cwd=where, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def passes(*command: str) -> None:
    done = run(*command)
    hold([done.stdout + done.stderr] if done.returncode else [])


def pure_paths() -> list[str]:
    return [module.path for module in read("peloton") if module.path.startswith(PURE)]


LINTED = ("peloton", "tests", "examples/extensions", "setup.py")


def test_ruff_finds_nothing() -> None:
    passes(str(BIN / "ruff"), "check", "--output-format=concise", *LINTED)


# Where a machine behind a port is wired: a stranger there is found by its type.
WIRED = [
    *(f"peloton/backends/{name}.py" for name in ("port", "roster", "process", "simulated")),
    *(f"peloton/assembly/{name}.py" for name in ("access", "backend_switch", "daemon")),
    *(f"peloton/assembly/{name}.py" for name in ("first_messages", "folders", "listeners")),
    "peloton/assembly/servers.py",
    "peloton/failures.py",
    "peloton/settings/start_options.py",
]


@pytest.mark.timeout(300)
def test_the_pure_folders_and_the_wiring_are_typed() -> None:
    passes(str(BIN / "mypy"), *pure_paths(), *WIRED)


@pytest.mark.timeout(300)
def test_both_clients_are_typed() -> None:
    """And in the client no coroutine is left that nobody awaits."""
    strict = ("--strict", "--no-warn-return-any")  # answers of stubs are anything
    passes(str(BIN / "mypy"), *strict, "peloton/sdk", "tests/sdk/typed_clients.py")


@pytest.mark.timeout(300)
def test_the_examples_of_extensions_are_typed_for_their_users() -> None:
    folders = sorted(
        path.parent for path in (ROOT / "examples/extensions").glob("*/pyproject.toml")
    )
    assert folders
    packages = [str(path.parent) for folder in folders for path in folder.glob("*/__init__.py")]
    passes(str(BIN / "mypy"), "--strict", *packages)


@pytest.mark.parametrize("path", WIRED)
def test_nothing_that_is_wired_may_be_anything(path: str) -> None:
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    hold(
        f"{path}:{node.lineno}: Any where a machine is wired: name the type, or its protocol"
        for node in nodes
        if isinstance(node, ast.Name) and node.id == "Any"
    )


def test_imports_point_down() -> None:
    passes(str(BIN / "lint-imports"), "--no-logo")


def test_every_layer_is_there() -> None:
    """import-linter passes over a layer that is missing, such as one of a misspelled name."""
    layers = configparser.ConfigParser()
    layers.read(ROOT / ".importlinter")
    names = re.findall(r"peloton[\w.]*", layers["importlinter:contract:floors"]["layers"])
    assert len(names) > 20
    hold(
        f".importlinter names the layer {name}, which is not there: name it as it is"
        for name in names
        if not ((file := ROOT / name.replace(".", "/")).is_dir() or Path(f"{file}.py").exists())
    )


def test_an_import_that_points_up_is_noticed(tmp_path: Path) -> None:
    """The contracts of .importlinter, run on a package of one sin each."""
    sins = {
        "runtime/vocabulary.py": "import peloton.runtime.core.turning.turn",
        "runtime/core/turning/turn.py": "import peloton.actors.task",
    }
    for path in [
        "__init__.py",
        *(f"{name}/__init__.py" for name in ("runtime", "runtime/core", "runtime/shells")),
        *(f"{name}/__init__.py" for name in ("runtime/adapters", "runtime/simulation")),
        *(f"{name}/__init__.py" for name in ("actors", "placement", "backends", "settings")),
        *(f"{name}/__init__.py" for name in ("assembly", "commands", "processes")),
        *(f"{name}/__init__.py" for name in ("chaos", "cli", "gateway", "sdk")),
        *(f"{name}/__init__.py" for name in ("actors/task", "backends/keeper")),
        *(f"{name}/__init__.py" for name in ("backends/mesos", "chaos/cluster")),
        "runtime/core/turning/__init__.py",
        "runtime/ports.py",
        *sins,
    ]:
        file = tmp_path / "peloton" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(sins.get(path, ""))
    (tmp_path / ".importlinter").write_text((ROOT / ".importlinter").read_text())
    done = run(str(BIN / "lint-imports"), "--no-cache", "--no-logo", where=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Imports point down BROKEN" in done.stdout
    assert "The runtime knows no job, task, pool or host BROKEN" in done.stdout


def test_an_untyped_function_in_a_pure_folder_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "peloton" / "actors" / "task.py"
    file.parent.mkdir(parents=True)
    file.write_text("def decide(task, message, now): ...\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    done = run(str(BIN / "mypy"), "peloton/actors/task.py", where=tmp_path)
    assert "no-untyped-def" in done.stdout
