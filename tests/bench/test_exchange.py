"""The exchange's benchmark, tiny: each case has its lines, and all that was sent has arrived."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import exchange
from bench.parts import far

TINY = (
    "--sizes 100 70000 --frames 64 --batches 1 10 --envelopes 50 --asks 70 --trips 5 --pairs 1"
).split()


def test_each_case_has_its_lines_plain_and_tls() -> None:
    lines = [*exchange.run(exchange.options(TINY))]
    for way in ("plain", "tls"):
        assert sum(line.startswith(f"frames {way}") for line in lines) == 2
        assert sum(line.startswith(f"envelopes {way}") for line in lines) == 3
        assert sum(line.startswith(f"ask and answer {way}") for line in lines) == 1
        assert sum(line.startswith(f"frame, there and back {way}") for line in lines) == 1


@pytest.fixture
def side() -> Iterator[exchange.ShellSide]:
    side = exchange.ShellSide(None)
    yield side
    side.close()


def test_envelopes_are_counted_where_they_arrive(side: exchange.ShellSide) -> None:
    assert side.received() == 0
    side.envelopes(25, batch=10)
    assert side.received() == 25


def test_envelopes_that_do_not_arrive_end_the_run(side: exchange.ShellSide) -> None:
    """Those of a place whose owner nobody knows go nowhere."""
    side.peer = far.HERE
    with pytest.raises(SystemExit, match="0 of 25 envelopes arrived"):
        side.envelopes(25, batch=10)
