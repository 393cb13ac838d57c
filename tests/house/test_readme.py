"""Holds the README and the scripts to each other: what it tells people to type is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.house import readme
from tests.house.tree import hold

SECTIONS = ("problem", "promise", "first run", "map", "limits")


def test_every_command_can_be_typed(root: Path) -> None:
    typed = list(readme.commands((root / "README.md").read_text()))
    assert typed, "a README without one command"
    hold(
        f"README.md: `{command}` cannot be typed: nothing here is called {word}"
        for command in typed
        if (word := readme.unknown(command, root))
    )


def test_the_sections_are_there(root: Path) -> None:
    titles = [
        line.lstrip("# ").lower()
        for line in (root / "README.md").read_text().splitlines()
        if line.startswith("## ")
    ]
    hold(
        f"README.md has no section with '{section}' in its title: write it"
        for section in SECTIONS
        if not any(section in title for title in titles)
    )


def test_a_command_that_is_not_there_is_noticed(root: Path) -> None:
    text = "```bash\n$ script/nonesuch --all\nscript/setup  # fine\nFOO=1 gone\n```\n"
    wrong = [readme.unknown(command, root) for command in readme.commands(text)]
    assert wrong == ["script/nonesuch", None, "gone"]


def scripts(root: Path) -> list[Path]:
    return [*sorted(p for p in (root / "script").iterdir() if p.is_file()), root / ".ci" / "run"]


def test_scripts_are_executable_and_parse(root: Path) -> None:
    for script in scripts(root):
        assert os.access(script, os.X_OK), f"{script} is not executable: chmod +x"
        if "bash" in script.read_text().splitlines()[0]:
            done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


def copy_with_a_python_that_only_notes(root: Path, to: Path) -> Path:
    """The files script/setup looks at, and in .venv a program that notes how it was called."""
    for folder in ("script", "proto"):
        shutil.copytree(root / folder, to / folder)
    for file in ("pyproject.toml", "setup.cfg", "setup.py"):
        shutil.copy(root / file, to / file)
    notes = to / "notes"
    python = to / ".venv" / "bin" / "python"
    for path in (python, to / "peloton" / "api" / ".made-from"):
        path.parent.mkdir(parents=True)
        path.write_text(f'#!/bin/sh\necho "$@" >>{notes}\n')
    python.chmod(0o755)
    return notes


def test_setup_installs_once_and_again_only_when_its_sources_change(
    root: Path, tmp_path: Path
) -> None:
    notes = copy_with_a_python_that_only_notes(root, tmp_path)

    def installs_after(*options: str) -> int:
        subprocess.run([tmp_path / "script" / "setup", *options], check=True, capture_output=True)
        return notes.read_text().count(" -e .")

    assert installs_after() == 1
    assert installs_after() == 1
    assert installs_after("--test") == 2
    assert installs_after("--test") == 2
    assert installs_after() == 2  # what the tests take is more than what running takes
    sources = ("pyproject.toml", "setup.cfg", "script/protos")
    for number, source in enumerate(sources, start=3):
        with (tmp_path / source).open("a") as project:
            project.write("# changed\n")
        assert installs_after() == number, source


def test_what_tests_take_ends_with_what_comes_without_dependencies(
    root: Path, tmp_path: Path
) -> None:
    notes = copy_with_a_python_that_only_notes(root, tmp_path)
    for option in ((), ("--test",)):
        subprocess.run([tmp_path / "script" / "setup", *option], check=True, capture_output=True)
    calls = [line for line in notes.read_text().splitlines() if "pip install" in line]
    assert [line.split()[-1] for line in calls] == [".", ".[test]", "pymesos>=0.3.15"]
    assert "--no-deps" in calls[-1]


def test_a_setup_that_fails_is_not_taken_for_done(root: Path, tmp_path: Path) -> None:
    copy_with_a_python_that_only_notes(root, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "no such package" >&2\n[ "$2" != pip ]\n')
    for _ in range(2):
        done = subprocess.run([tmp_path / "script" / "setup"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "run script/setup again" in done.stderr
        log = tmp_path / ".venv" / "setup.log"
        assert str(log) in done.stderr and "no such package" in done.stderr
        assert log.read_text() == "no such package\n"


PIP_SAYS = r"""
[ "$2" = pip ] || exit 0
for number in 1 2 3 4 5 6 7 8 9 10 11 12; do
  echo "Collecting p$number>=1 (from peloton-scheduler==0.2.0)"
  echo "  Downloading p$number-1-py3-none-any.whl (1 kB)"
done
echo "Installing collected packages: p1, p2, p3"
"""


def test_a_setup_says_in_few_lines_how_far_it_is_and_keeps_all(root: Path, tmp_path: Path) -> None:
    copy_with_a_python_that_only_notes(root, tmp_path)
    (tmp_path / ".venv" / "bin" / "python").write_text(f"#!/bin/sh\n{PIP_SAYS}")
    script = tmp_path / "script" / "setup"
    done = subprocess.run([script], check=True, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if not line.startswith("==> ")] == [
        "    fetching packages",
        "    fetching packages: 10 so far",
        "    installing 3 packages",
    ]
    assert "Downloading p12-1" in (tmp_path / ".venv" / "setup.log").read_text()
