"""A commit on SQLite and on Cassandra, side by side: how long, how many, for how many bytes.

    script/bench journal                                 all sizes, about two minutes
    script/bench journal --shards 8 --facts 10 --rounds 200
    script/bench journal --cassandra-port 9042 --data-centre datacenter1    of a cluster that runs

A round commits one frame of every shard, as the journal's shell does when all are ready; rounds on
the two stores alternate, and ratios are of neighbours in time. Frames hold real facts of single
tasks. At the end all is read back: a figure of a journal that lost a frame would be worth nothing.
It must not gate a test, and what it prints can be compared within one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts import servers  # noqa: E402
from bench.parts.measure import (  # noqa: E402
    cpu_s,
    machine,
    quantile,
    ratio,
    spread,
    written_bytes,
)
from peloton.actors.task.facts import (  # noqa: E402
    LaunchAccepted,
    RunEnded,
    TaskLaunching,
    TaskStarted,
)
from peloton.actors.task.messages import End, RunOutcome  # noqa: E402
from peloton.assembly.kinds import kinds  # noqa: E402
from peloton.runtime.adapters.cassandra_store import CassandraRows  # noqa: E402
from peloton.runtime.adapters.fenced_rows import FencedRows  # noqa: E402
from peloton.runtime.adapters.sqlite_store import SqliteJournal  # noqa: E402
from peloton.runtime.adapters.sqlite_witness import WitnessOptions  # noqa: E402
from peloton.runtime.core.entities.codec import Codec, Entry  # noqa: E402
from peloton.runtime.ports import (  # noqa: E402
    ROUND_SHARDS_MAX,
    Claimed,
    Committed,
    Frame,
    Journal,
    ShardId,
    Work,
)
from peloton.runtime.vocabulary import Key  # noqa: E402
from peloton.settings.daemon import ALONE_SHARDS  # noqa: E402

GROUP = "bench"
KEYSPACE = "bench_journal"
DONE = RunOutcome(End.SUCCEEDED, 0)
LIFE = (TaskLaunching(), LaunchAccepted(), TaskStarted(), RunEnded(DONE))
"""What a task writes down from its launch on."""
NOW_S = 1.8e9


class Case(NamedTuple):
    """How many shards commit at once, and how much each."""

    shards: int
    facts: int


class Took(NamedTuple):
    """Some rounds of one case on one store."""

    rounds_s: list[float]
    here_s: float  # CPU of this process
    there_s: float  # and of the server
    written: int

    @property
    def wall_s(self) -> float:
        """All rounds together."""
        return sum(self.rounds_s)


def frame_of(facts: int, codec: Codec) -> bytes:
    """The body of a frame: each fact by a turn of its own, of a task of its own."""
    rows = []
    for number, fact in zip(range(facts), itertools.cycle(LIFE), strict=False):
        key = Key(f"task/5f4dcc3b-5aa7-65d6-1d83-27deb882cf{number % 100:02}/0")
        values = (f"host/agent{number}",) if isinstance(fact, TaskLaunching) else ()
        entry = Entry(key, (fact,), 1, values, cause="Started 1a2b3c4d", because="it runs")
        rows.append(codec.encode_entry(entry))
    return codec.encode_frame(NOW_S, rows)


class Store:
    """One journal, with all shards of the benchmark claimed."""

    def __init__(self, name: str, journal: Journal, *, shards: int, server_pid: int = 0) -> None:
        self.name = name
        self._journal = journal
        self._server_pid = server_pid
        self._epochs: dict[ShardId, int] = {}
        self._positions: dict[ShardId, int] = {}
        self.committed: dict[ShardId, int] = {}
        """Frames of this run."""
        journal.bootstrap({GROUP: shards})
        for number in range(shards):
            self._claim(ShardId(GROUP, number))

    def run(self, case: Case, *, body: bytes, rounds: int) -> Took:
        """So many rounds."""
        times = []
        here_s, there_s, written = time.process_time(), self._server_s(), self._written()
        for _ in range(rounds):
            works = [self._work(ShardId(GROUP, n), body) for n in range(case.shards)]
            begun = time.perf_counter()
            answers = self._journal.commit(works)
            times.append(time.perf_counter() - begun)
            for work, answer in zip(works, answers, strict=True):
                if not isinstance(answer, Committed):
                    raise SystemExit(f"{self.name}: {work.shard}: {answer}")
                self.committed[work.shard] += 1
        here_s, there_s = time.process_time() - here_s, self._server_s() - there_s
        return Took(times, here_s, there_s, self._written() - written)

    def check(self) -> int:
        """Read all back as a next owner does; frames that are there. Ends the run if one is not."""
        before = {shard: self._positions[shard] - n for shard, n in self.committed.items()}
        found = 0
        for shard, last in [*self._positions.items()]:
            self._claim(shard)
            list(self._journal.read_checkpoint(shard))
            tail = [frame.position for frame in self._journal.read_tail(shard)]
            mine = [position for position in tail if position > before[shard]]
            if mine != list(range(before[shard] + 1, last + 1)):
                raise SystemExit(f"{self.name}: {shard}: frames are missing")
            found += len(mine)
        return found

    def _claim(self, shard: ShardId) -> None:
        claimed = self._journal.claim(shard, "bench")
        if not isinstance(claimed, Claimed):
            raise SystemExit(f"{self.name}: {shard}: {claimed.text}")
        self._epochs[shard], self._positions[shard] = claimed.epoch, claimed.last_position
        self.committed.setdefault(shard, 0)

    def _work(self, shard: ShardId, body: bytes) -> Work:
        self._positions[shard] += 1
        return Work(shard, self._epochs[shard], Frame(self._positions[shard], body))

    def _server_s(self) -> float:
        return cpu_s(self._server_pid) if self._server_pid else 0.0

    def _written(self) -> int:
        return written_bytes(self._server_pid or os.getpid())


def line_of(store: str, case: Case, took: Sequence[Took], *, body_bytes: int) -> str:
    """One line of the table."""
    rounds = [each_s for some in took for each_s in some.rounds_s]
    frames = len(rounds) * case.shards
    wall_s = sum(some.wall_s for some in took)
    here_us = sum(some.here_s for some in took) / frames * 1e6
    there_us = sum(some.there_s for some in took) / frames * 1e6
    written = sum(some.written for some in took) / frames / case.facts
    return (
        f"{store:<9} {case.shards:>3} shards {case.facts:>4} facts  "
        f"{frames / wall_s:>7,.0f} commits/s {frames * case.facts / wall_s:>9,.0f} facts/s  "
        f"{spread(rounds):<30} {body_bytes / case.facts:>5.0f} B a fact ({written:,.0f} written)  "
        f"cpu a commit {here_us:,.0f} us, server {there_us:,.0f} us"
    )


def compare(stores: Sequence[Store], case: Case, *, rounds: int, pairs: int) -> Iterator[str]:
    """The stores by turns, and their ratios."""
    body = frame_of(case.facts, Codec(kinds(ALONE_SHARDS)))
    took: dict[str, list[Took]] = {store.name: [] for store in stores}
    for store in stores:
        store.run(case, body=body, rounds=1)  # what is done once only is no part of the figures
    for turn in range(pairs):
        for store in stores if turn % 2 == 0 else reversed(stores):
            took[store.name].append(store.run(case, body=body, rounds=rounds))
    for store in stores:
        yield line_of(store.name, case, took[store.name], body_bytes=len(body))
    base, other = (took[store.name] for store in stores)
    both = [*zip(other, base, strict=True)]
    p50 = [(quantile(a.rounds_s, 0.5), quantile(b.rounds_s, 0.5)) for a, b in both]
    rates = ratio([(a.wall_s, b.wall_s) for a, b in both])
    yield f"{'':9} Cassandra / SQLite: time {rates}, p50 {ratio(p50)}"


@contextlib.contextmanager
def open_stores(chosen: argparse.Namespace, folder: Path) -> Iterator[list[Store]]:
    """Both, empty or as an earlier run left them."""
    shards = max(chosen.shards)
    with contextlib.ExitStack() as stack:
        outside = stack.enter_context(servers.outside(chosen, folder))
        # With the witness, as a daemon has it.
        local = SqliteJournal(folder / "journal.sqlite", witness=WitnessOptions(folder))
        stack.callback(local.close)
        rows = CassandraRows.open(servers.keyspace(outside, chosen.keyspace))
        far = FencedRows(rows, process=os.urandom(16))
        stack.callback(far.close)
        yield [
            Store("SQLite", local, shards=shards),
            Store("Cassandra", far, shards=shards, server_pid=outside.cassandra_pid),
        ]


def run(chosen: argparse.Namespace) -> Mapping[str, int]:
    """Everything; how many frames each store has of this run."""
    with tempfile.TemporaryDirectory(prefix="peloton-bench-") as name:
        folder = Path(name)
        with open_stores(chosen, folder) as stores:
            print(*machine(folder), sep="\n")
            for case in itertools.starmap(Case, itertools.product(chosen.shards, chosen.facts)):
                for line in compare(stores, case, rounds=chosen.rounds, pairs=chosen.pairs):
                    print(line, flush=True)
            return {store.name: store.check() for store in stores}


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    shards = f"in a round, at most {ROUND_SHARDS_MAX}"
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 8, 64], help=shards)
    parser.add_argument("--facts", type=int, nargs="+", default=[1, 10, 100], help="in a frame")
    parser.add_argument("--rounds", type=int, default=30, help="on one store, before the other's")
    parser.add_argument("--pairs", type=int, default=5, help="how often each store has its turn")
    parser.add_argument("--keyspace", default=KEYSPACE)
    servers.options(parser, zookeeper=False)
    return parser.parse_args(args)


if __name__ == "__main__":
    frames = run(options())
    print("# read back:", ", ".join(f"{name} {count} frames" for name, count in frames.items()))
