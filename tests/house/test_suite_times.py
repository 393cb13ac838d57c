"""The table of what each suite took.

The times are not judged: a busy machine is no failure.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import suite_times


@pytest.mark.parametrize(
    ("nodeid", "suite"),
    [
        ("tests/backends/keeper/test_kills.py::test_it[a/b]", "backends"),
        ("tests/core/test_crowd.py::Test::test_it", "core"),
        ("tests/test_alone.py::test_it", "test_alone.py"),
    ],
)
def test_a_suite_is_a_folder_of_tests(nodeid: str, suite: str) -> None:
    assert suite_times.suite_of(nodeid) == suite


def report(nodeid: str, seconds: float, outcome: str = "passed") -> pytest.TestReport:
    return pytest.TestReport(
        nodeid, (nodeid, 0, ""), keywords={}, outcome=outcome, longrepr=None, when="call",
        duration=seconds,
    )  # fmt: skip


def table(stats: dict[str, list[object]], budget: float) -> list[str]:
    lines: list[str] = []
    terminal = SimpleNamespace(stats=stats, write_line=lines.append, section=lambda title: None)
    options = {"--budget": budget, "--slow": False, "file_or_dir": []}
    config = SimpleNamespace(getoption=options.__getitem__)
    suite_times.pytest_terminal_summary(terminal, config)
    return lines


def test_the_suites_stand_by_their_seconds_and_the_wall_clock_comes_last() -> None:
    first, second = "tests/core/test_a.py::test_a", "tests/worlds/test_b.py::test_b"
    lines = table(
        {
            "": [report(first, 0.5)],
            "passed": [report(first, 1.0), object()],
            "failed": [report(second, 4.0, "failed")],
            "skipped": [report(f"{second}[2]", 0.5, "skipped")],
        },
        budget=480.0,
    )
    assert [line.split()[:3] for line in lines[:2]] == [
        ["worlds", "1", "4.5"],
        ["core", "1", "1.5"],
    ]
    assert lines[2].startswith("wall clock: ") and lines[2].endswith(" of 480 on two quiet cores")
    assert len(lines) == 3


def test_without_a_budget_only_what_was_is_said() -> None:
    (line,) = table({}, budget=0.0)
    assert line.startswith("wall clock: ") and line.endswith(" s")
