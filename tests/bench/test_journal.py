"""The journal's benchmark, tiny: what it committed is there, on both stores. No time is judged."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pytest

from bench import journal
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.ports import Answer, Committed, Work
from peloton.runtime.simulation.memory_rows import MemoryRows
from tests.servers import cassandra

SHARDS, FACTS, ROUNDS, PAIRS = [1, 3], [1, 10], 2, 2
TURNS = PAIRS * ROUNDS + 1  # and one to warm up
FRAMES = sum(SHARDS) * len(FACTS) * TURNS


def asked() -> argparse.Namespace:
    words = ["--rounds", str(ROUNDS), "--pairs", str(PAIRS), "--keyspace", "bench"]
    words += ["--cassandra-port", str(cassandra.shared().port)]
    words += ["--shards", *map(str, SHARDS), "--facts", *map(str, FACTS)]
    return journal.options(words)


def test_each_frame_is_there_and_each_case_has_its_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert journal.run(asked()) == {"SQLite": FRAMES, "Cassandra": FRAMES}
    lines = capsys.readouterr().out.splitlines()
    cases = len(SHARDS) * len(FACTS)
    for store in ("SQLite", "Cassandra"):
        assert sum(line.startswith(store) and "commits/s" in line for line in lines) == cases
    assert sum("Cassandra / SQLite" in line for line in lines) == cases


class Forgetful(FencedRows):
    """Says that all is safe, and keeps nothing."""

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        return [Committed() for _ in works]


def test_a_frame_that_is_lost_ends_the_run() -> None:
    forgetful = journal.Store("forgetful", Forgetful(MemoryRows(), process=bytes(16)), shards=1)
    forgetful.run(journal.Case(1, 1), body=b"frame", rounds=2)
    with pytest.raises(SystemExit, match="frames are missing"):
        forgetful.check()
    honest = journal.Store("honest", FencedRows(MemoryRows(), process=bytes(16)), shards=1)
    honest.run(journal.Case(1, 1), body=b"frame", rounds=2)
    assert honest.check() == 2
