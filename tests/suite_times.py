"""A pytest plug-in: what each suite took, beside its budget, before the summary.

A suite is a folder of `tests/`. Seconds are those of the workers, which overlap; the budget is for
two quiet cores. Nothing is decided by the times: a busy machine is no failure.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import pytest

BUDGETS_S: dict[str, float] = {
    "actors": 85, "adapters": 270, "backends": 120, "bench": 10, "cli": 95, "compat": 20,
    "contracts": 75, "core": 50, "e2e": 230, "gateway": 230, "house": 40, "journals": 1,
    "model": 35, "mutants": 1, "placement": 40, "sdk": 10, "shells": 15, "transcripts": 1,
    "wire": 1, "worlds": 265,
}  # fmt: skip
"""Seconds of the four workers that script/test starts, without --slow."""
BEGUN_S = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget", type=float, default=0.0, metavar="S",
        help="what this run should take on two quiet cores; printed, never asserted",
    )  # fmt: skip


def suite_of(nodeid: str) -> str:
    """The folder below tests/, or the module that stands there alone."""
    return nodeid.removeprefix("tests/").partition("/")[0].partition("::")[0]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if not isinstance(report, pytest.TestReport):
                continue
            suite = suite_of(report.nodeid)
            seconds[suite] += report.duration
            if not report.skipped:
                tests[suite].add(report.nodeid)
    write = terminalreporter.write_line
    asked = config.getoption("--budget")
    # They are for the whole suite, in as many workers as script/test starts.
    whole = asked and not (config.getoption("--slow") or config.getoption("file_or_dir"))
    budgets = BUDGETS_S if whole else {}
    title = "suites: tests, seconds of the workers"
    terminalreporter.section(f"{title}, budget on two quiet cores" if whole else title)
    for suite in sorted(seconds, key=lambda name: -seconds[name]):
        budget = f"{budgets[suite]:8.0f}" if suite in budgets else ""
        write(f"{suite:14} {len(tests[suite]):6} {seconds[suite]:8.1f} {budget}".rstrip())
    budget = f" of {asked:.0f} on two quiet cores" if asked else ""
    write(f"wall clock: {time.monotonic() - BEGUN_S:.0f} s{budget}")
