"""The benchmark of the front door, tiny: every call is answered and counted. No time is judged."""

from __future__ import annotations

import re

import pytest

from bench import api

CALLS, CREATES, JOBS = 6, 5, 10


def asked(*more: str) -> list[str]:
    """Options of a run of seconds."""
    counts = {
        "--calls": CALLS, "--creates": CREATES, "--jobs": JOBS, "--large": 20, "--hosts": 3,
        "--pairs": 1,
    }  # fmt: skip
    return [*(str(word) for pair in counts.items() for word in pair), *more]


@pytest.mark.nightly
@pytest.mark.timeout(300)  # processes begin, on a machine that may be busy
def test_each_case_has_its_line_and_its_ratio_to_the_echo() -> None:
    lines = [*api.run(api.options(asked("--threads", "1", "2")))]
    cases = [f"{name} x{n}" for name in ("Get small", "Get large", "Query") for n in (1, 2)]
    for case, calls in [*((case, CALLS) for case in cases), ("Create x2", CREATES)]:
        for server, count in (("here", calls), ("echo", CALLS)):
            (line,) = [one for one in lines if one.startswith(f"{case:<22} {server}")]
            assert f"({count} calls)" in line and re.search(r"cpu +\d+ us", line)
        assert any(one.startswith(f"# {case:<22} here / echo: cpu a call ") for one in lines)


def test_an_answer_that_is_wrong_ends_the_run() -> None:
    load = api.get(["00000000-0000-4000-8000-000000000000"], 1, size=1)
    with pytest.raises(SystemExit, match="Get"):
        load.check(b"")
    with pytest.raises(SystemExit, match="Query: 0 jobs"):
        api.query(1).check(b"")
