"""Scripts explain themselves before they install or start anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXPLAINED = (
    "demo test bench quick planted mutants replay sweep services points model nemesis".split()
)


@pytest.mark.parametrize("name", EXPLAINED)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_installs_nothing(name: str, flag: str, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "script", tmp_path / "script")
    done = subprocess.run(
        [tmp_path / "script" / name, flag], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert f"script/{name}" in done.stdout and done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["script"]


@pytest.mark.parametrize("name", ["points", "model", "nemesis"])
def test_each_option_has_a_text(name: str, root: Path, tmp_path: Path) -> None:
    line = [sys.executable, str(root / "script" / name), "--help"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"usage: script/{name}" in done.stdout
    options = [text for text in done.stdout.splitlines() if text.startswith("  --")]
    texts = done.stdout.splitlines()
    for option in options:
        # A short one has its text behind it, a long one in the next line.
        after = texts[texts.index(option) + 1]
        assert "  " in option.strip() or after.startswith(" " * 20), option


@pytest.mark.parametrize(
    ("module", "argument", "said"),
    [
        ("tests.worlds.planted", "nosuch", "no such fault: nosuch; there are"),
        ("peloton.chaos.replay", "nofile.json", "nofile.json: No such file or directory"),
        ("peloton.chaos.replay", "foo", "foo: No such file or directory"),
        ("peloton.chaos.replay", "setup.cfg", "setup.cfg: no plan of a storm"),
    ],
)
def test_a_wrong_argument_is_named(module: str, argument: str, said: str, root: Path) -> None:
    line = [sys.executable, "-m", module, argument]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "Traceback" not in done.stderr
