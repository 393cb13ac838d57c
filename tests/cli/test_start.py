"""What the program loads before it knows its command, and how it answers to a wrong one.

What is loaded is asserted; the time is only printed, since the machine may be busy.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import click
import pytest

from peloton.cli.main import root
from peloton.cli.shared import unimplemented
from peloton.cli.shared.lazy import LazyCommand, LazyGroup, load
from tests.cli.terminal import typed

HEAVY = ("grpc", "google", "yaml", "rich", "msgspec", "numpy", "pykka", "asyncio", "urllib.request")
PROBE = """
import json, sys
from peloton.__main__ import main
heavy, lines = json.loads(sys.argv[1])
for words in lines:
    sys.argv = ["peloton", *words.split()]
    try:
        main()
    except SystemExit:
        pass
    found = [name for name in heavy if name in sys.modules]
    assert not found, (words, found)
"""
LINES = (
    "--help",
    "--version",
    "job --help",
    "job create --help",
    "task logs --help",
    "why --help",
    "admin quarantine list --help",
    "jbo",
    "job get",
    "hostmgr disable-kill-tasks x 1",
    "task list x -r nonsense",
)


def test_nothing_heavy_is_loaded_before_there_is_something_to_do() -> None:
    """By one line after the other, in a process that has loaded nothing else."""
    words = [sys.executable, "-c", PROBE, json.dumps([HEAVY, LINES])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_time_of_a_cold_help_is_printed() -> None:
    began = time.perf_counter()
    command = [sys.executable, "-m", "peloton", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    took_ms = (time.perf_counter() - began) * 1000
    print(f"cold --help: {took_ms:.0f} ms")
    assert "Commands:" in done.stdout


def test_a_word_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    for line, words in [
        (["jbo"], "no such command: jbo, did you mean job?"),
        (["job", "craete"], "no such command: craete, did you mean create?"),
        (["job", "list"], "no such command: list. There are create, get, status, query, "),
        (["job", "craete"], "did you mean create? There are create, get, "),
        (["minicluste"], "did you mean minicluster?"),
        (["xyzzy"], "no such command: xyzzy. There are daemon, minicluster, "),
    ]:
        printed = typed(*line)
        assert printed.code == 64
        assert words in printed.err
        assert printed.out == ""


@pytest.mark.parametrize(
    "line",
    [
        "hostmgr disable-kill-tasks", "hostmgr disable-kill-tasks -x",
    ],
)  # fmt: skip
def test_what_comes_later_says_so(line: str) -> None:
    printed = typed(*line.split())
    assert printed.code == 70
    assert printed.err.endswith("not supported yet\n")


def entries_below(group: LazyGroup) -> Iterator[tuple[str, LazyCommand, click.Command]]:
    for name, entry in group.table.items():
        command = load(entry, name)
        yield name, entry, command
        if isinstance(command, LazyGroup):
            yield from entries_below(command)


def test_help_hides_what_is_not_supported() -> None:
    group = root({})
    assert isinstance(group, LazyGroup)
    found = {
        name: entry.hidden
        for name, entry, command in entries_below(group)
        if command.callback is unimplemented.refuse
    }
    assert "disable-kill-tasks" in found
    assert all(found.values()), found


def test_help_shows_what_one_can_use() -> None:
    out = typed("job", "--help").out
    assert "create" in out
    assert "disable-kill-tasks" not in typed("hostmgr", "--help").out
    assert typed("job", "--help").code == 0
    assert typed().code == 64


def test_a_reader_that_had_enough_is_no_failure() -> None:
    command = [sys.executable, "-m", "peloton", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
