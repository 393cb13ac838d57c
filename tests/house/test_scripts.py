"""Scripts explain themselves before they install or start anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXPLAINED = (
    "demo test bench quick planted mutants replay sweep services points model nemesis nightly "
    "subjects wheel".split()
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
        ("peloton.chaos.replay", "setup.cfg", "setup.cfg: no scenario of a storm"),
    ],
)
def test_a_wrong_argument_is_named(module: str, argument: str, said: str, root: Path) -> None:
    line = [sys.executable, "-m", module, argument]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "Traceback" not in done.stderr


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_subject_that_is_too_long_is_named_and_refused_where_asked(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "script").mkdir()
    script = shutil.copy(root / "script" / "subjects", tmp_path / "script")

    def subjects(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script, *words], cwd="/", capture_output=True, text=True, timeout=60, check=False
        )

    fits, too_long = "S" * 72, "L" * 73
    git(tmp_path, "init", "-q")
    for subject in (too_long, fits):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"{subject}\n\n{'B' * 90}")
    assert (subjects("HEAD~1..").returncode, subjects("HEAD~1..").stdout) == (0, "")
    every = subjects()
    assert every.returncode == 1 and every.stdout.count("at most") == 1
    assert "73 characters, 72 at most: " in every.stdout and too_long in every.stdout
    assert subjects("--install").returncode == 0
    refused = git(tmp_path, "commit", "--allow-empty", "-m", too_long)
    assert refused.returncode == 1 and "73 characters" in refused.stdout + refused.stderr
    assert git(tmp_path, "commit", "--allow-empty", "-m", fits).returncode == 0
