"""A crowd of n against n crowds of one: drawn histories, compared member by member.

Per member: equal state, columns, sends, answers and deadlines; entries as multisets. Attempts of
failing turns are not compared, because a class is tried as a whole first.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key, Message, members_of
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import bulbs, panel
from tests.toy.kinds import KINDS

MEMBERS = 5
METERS = tuple(Key(f"meter/{at}") for at in range(3))

sets = st.integers(1, (1 << MEMBERS) - 1)
runs = st.integers(1, 3)
said = st.one_of(
    st.builds(w.Fit, st.integers(0, 1)),
    st.builds(w.BulbGoal, st.integers(1, 6), st.booleans()),
    st.builds(w.Granted, runs),
    st.builds(w.Denied, runs),
    st.builds(w.Undrawn, runs),
    st.builds(w.Trip, runs),
    st.just(w.Scrap()),
    st.just(w.Wire()),
)
steps = st.one_of(
    st.tuples(sets, said, st.lists(st.sampled_from(METERS), min_size=MEMBERS, max_size=MEMBERS)),
    st.integers(1, 40),  # ticks that pass
)


class Way:
    """One way to run the members: which crowd a member lives in, and what it says."""

    def __init__(self, name_of: Any) -> None:
        self.name_of = name_of
        self.bench = Bench()
        for name in dict.fromkeys(name_of(at) for at in range(MEMBERS)):
            # A panel that fits and switches nothing by itself: it is here for its watts.
            self.bench.send(panel(name), w.Install(0, (60, 40)))
        self.bench.rest()
        self.bench.taken()
        self.frames = len(self.bench.frames)

    def send(self, raw: int, message: Message, values: list[Key]) -> None:
        """The members of `raw` hear it, each in its own crowd."""
        crowds: dict[str, int] = {}
        for member in members_of(raw):
            name = self.name_of(member)
            crowds[name] = crowds.get(name, 0) | 1 << member
        for name, some in crowds.items():
            mine: tuple[Key, ...] = ()
            if isinstance(message, w.Wire):
                mine = tuple(values[member] for member in members_of(some))
            self.bench.send(bulbs(name), message, some, sender=Key("meter/0"), values=mine)
        self.bench.rest()

    def members(self) -> list[Any]:
        """State, columns and next deadline of each."""
        found = []
        for member in range(MEMBERS):
            crowd = self.bench.shard.population.crowd(bulbs(self.name_of(member)))
            state = crowd.state_of(member)
            columns = ("since", "meter", "spec", "lit_at", "last")
            row = [crowd.columns.read(name, member) if state else None for name in columns]
            if state is not None and crowd.kind.deadline(state) is None:
                row[0] = None  # the beginning of a deadline that is no more
            due = [tick for tick, raw in crowd.buckets.items() if raw >> member & 1]
            live = state is not None and crowd.kind.deadline(state) is not None
            found.append((state, row, max(due, default=None) if live else None))
        return found

    def sent(self) -> Counter[Any]:
        """What each member said, and to whom."""
        count: Counter[Any] = Counter()
        for envelope in self.bench.taken():
            if envelope.sender is not None and envelope.sender.startswith("bulb/"):
                for member in members_of(envelope.origin):
                    count[member, envelope.to, envelope.message] += 1
        return count

    def entries(self) -> Counter[Any]:
        """The facts of each member."""
        count: Counter[Any] = Counter()
        for frame in self.bench.frames[self.frames :]:
            for entry in self.bench.codec.decode_frame(frame.body)[1]:
                if entry.key.startswith("bulb/"):
                    values = entry.values or (None,) * entry.members.bit_count()
                    for member, value in zip(members_of(entry.members), values, strict=True):
                        count[member, tuple(f for f in entry.facts if not _aside(f)), value] += 1
        return count


def _aside(fact: Any) -> bool:
    return type(fact).__name__ in ("MessageSetAside", "Quarantined")


def same_index(bench: Bench) -> None:
    twin = Population(KINDS)
    population = bench.shard.population
    twin.cells, twin.crowds = population.cells, population.crowds
    twin.rebuild()
    for name, index in population.indexes.items():
        assert twin.indexes.get(name) == index


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=14))
def test_a_crowd_of_n_is_n_crowds_of_one(history: list[Any]):
    together, apart = Way(lambda at: "all"), Way(lambda at: f"one-{at}")
    for step in history:
        for way in (together, apart):
            if isinstance(step, int):
                way.bench.after(step / 10)
            else:
                way.send(*step)
        assert together.members() == apart.members()
        assert together.sent() == apart.sent()
        same_index(together.bench)
    assert together.entries() == apart.entries()
    for way in (together, apart):
        assert digest(way.bench.replay()) == digest(way.bench.shard)


def test_a_turn_that_fails_leaves_nothing_behind():
    bench = Bench()
    bench.send(panel("a"), w.Install(4))
    bench.rest()
    before = digest(bench.shard), len(bench.frames)
    too_few = (METERS[0], METERS[1])
    bench.shard.take([Envelope(bulbs("a"), w.Wire(), 0b1111, values=too_few)])
    bench.once()
    assert (digest(bench.shard), len(bench.frames)) == before
