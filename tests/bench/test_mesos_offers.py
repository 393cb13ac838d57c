"""The benchmark of offers, tiny: each case has its line. No time is judged."""

from __future__ import annotations

import re

from bench import mesos_offers


def test_each_case_has_its_line() -> None:
    lines = [*mesos_offers.run(mesos_offers.options(["--agents", "5"]))]
    assert lines[0] == "# 5 agents, one task on each"
    assert [line[:18].strip() for line in lines[1:]] == [*mesos_offers.CASES]
    assert all(re.search(r"s, cpu +[\d.]+ s", line) for line in lines[1:])
    assert [("from offers to launch" in line) for line in lines[1:]] == [False, True, True, 0, 0]
