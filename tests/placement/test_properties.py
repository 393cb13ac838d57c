"""Properties of the placer over drawn clusters and histories."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.resources import EPSILON, Resources
from peloton.placement import sorted_rows
from peloton.placement.flights import PROPOSAL_KEEP_S
from peloton.placement.messages import HostSummary, Label, Placed, Shape, Unplaced, Wish
from peloton.placement.needs import PORTS
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.sorted_rows import BLOCK_MAX
from peloton.runtime.vocabulary import Bits, Key, Message

from .hosts import host, label, oracle_pack, place, placer_of, report, res

amounts = st.sampled_from([0, 0.0005, 0.5, 0.9995, 1, 1.5, 2, 3, 8])
frees = st.builds(res, amounts, amounts, amounts, st.sampled_from([0, 0, 0, 0.5, 2]))
needs = st.builds(
    res,
    st.sampled_from([0, 0.0003, 0.4, 1, 2]),
    st.sampled_from([0, 0.5, 1]),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([0, 0, 0, 0.0005, 1]),
)


@st.composite
def clusters(draw: st.DrawFn) -> list[HostSummary]:
    drawn = draw(st.lists(st.tuples(frees, st.sampled_from([True] * 7 + [False])), max_size=12))
    return [
        host(f"h{n}", free, up=up, labels=(Label("side", "ab"[n % 2]),), ports=n % 4)
        for n, (free, up) in enumerate(drawn)
    ]


# Few members are looked up in kept orders or found by array scans, whichever costs less; both must
# have every property here, so each is forced.
mends = st.sampled_from([0, 1_000_000, None])
quick = settings(max_examples=100, deadline=None)


@quick
@given(clusters(), needs, st.tuples(st.integers(1, 40), st.integers(1, 20)), mends)
def test_pack_is_the_oracle_however_members_are_divided(
    hosts: list[HostSummary], need: Resources, numbers: tuple[int, int], mend_rows: int | None
) -> None:
    members, batch = numbers
    placer = placer_of(hosts, PlacerSettings(mend_rows=mend_rows))
    found: list[str] = []
    left = members
    while left > 0:
        now, _ = place(placer, Shape(need), min(batch, left))
        found += now
        left -= batch
    assert found == oracle_pack(hosts, Shape(need), members)
    assert place(placer_of(hosts), Shape(need), members)[0] == found


@quick
@given(clusters(), needs, st.integers(1, 20), mends)
def test_spread_is_the_emptiest_hosts_once(
    hosts: list[HostSummary], need: Resources, members: int, mend_rows: int | None
) -> None:
    placer = placer_of(hosts, PlacerSettings(mend_rows=mend_rows))
    found, _ = place(placer, Shape(need, strategy="spread"), members)
    fitting = [h for h in hosts if h.up and need.within(h.free) and max(h.free.amounts()) > 0]
    at = {h.host: n for n, h in enumerate(hosts)}

    def rank(h: HostSummary) -> tuple[object, ...]:
        cpu, memory, disk, gpu, _ = h.free.amounts()
        return h.capacity.gpu > 0, -gpu, -cpu, -memory, -disk, at[h.host]

    expected = [h.host.removeprefix("host/") for h in sorted(fitting, key=rank)]
    assert found == expected[:members]


wishes = st.tuples(
    needs,
    st.integers(1, 9),
    st.sampled_from(["pack", "spread"]),
    st.sampled_from([None, label("host", "side", "a"), label("host", "hostname", "h1")]),
    st.integers(0, 2),
)


@quick
@given(clusters(), st.lists(st.lists(wishes, max_size=4), max_size=6), st.integers(1, 3), mends)
def test_no_host_is_proposed_beyond_what_it_has_and_all_are_answered_once(
    hosts: list[HostSummary], calls: list[list[tuple]], parts: int, mend_rows: int | None
) -> None:
    placer = placer_of(hosts, PlacerSettings(part=parts - 1, parts=parts, mend_rows=mend_rows))
    free = {h.host: h.free for h in hosts}
    ports = {h.host: h.ports for h in hosts}
    for at, call in enumerate(calls):
        wishes: dict[Key, Wish] = {}
        for n, (need, members, strategy, constraint, wanted) in enumerate(call):
            shape, slice_ = Shape(need, wanted, constraint, strategy), Key(f"slice/{at}-{n}/0")
            wishes[slice_] = Wish(slice_, n, Bits.span(n, n + members), shape)
        messages: list[tuple[Key | None, Message]] = [*wishes.items()]
        answered = dict.fromkeys(wishes, 0)
        for send in placer.receive(messages, 0.0):
            answer = send.message
            assert isinstance(answer, Placed | Unplaced)
            assert not answered[send.to] & answer.members.raw
            answered[send.to] |= answer.members.raw
            if isinstance(answer, Placed):
                for name in answer.hosts:
                    shape = wishes[send.to].shape
                    free[name] -= shape.resources
                    ports[name] -= shape.ports
        assert answered == {name: wish.members.raw for name, wish in wishes.items()}
        # The epsilon admits a shortfall below it, once: sums never snap.
        assert all(min(room.amounts()) > -EPSILON for room in free.values())
        assert all(count >= 0 for count in ports.values())


pauses = st.sampled_from([0.0, 0.0625, 0.125, 1.0])  # sums of them are exact
summaries = st.tuples(st.integers(0, 4), frees, st.integers(0, 3), st.integers(0, 3))


@quick
@given(st.lists(st.tuples(pauses, st.one_of(summaries, st.integers(1, 6))), max_size=25))
def test_free_is_the_last_report_less_proposals_in_flight(history: list) -> None:
    """A model with one dictionary a host, against deltas that come late or twice."""
    placer = placer_of([])
    known: dict[Key, tuple[int, Resources]] = {}
    decided: dict[Key, int] = {}
    proposed: dict[Key, list[float]] = {}  # when, oldest first
    need, now, sequence = res(1), 0.0, 1
    for pause_s, step in history:
        now += pause_s
        if isinstance(step, int):
            found, _ = place(placer, Shape(need), step, now=now)
            for name in found:
                proposed[Key(f"host/{name}")].append(now)
        else:
            number, free, position, more = step
            launches = position * 3 + more
            summary = host(f"h{number}", free, position, capacity=res(9), launches=launches)
            sequence += 1
            report(placer, [summary], sequence, now=now)
            before = decided.setdefault(summary.host, launches)
            decided[summary.host] = max(before, launches)
            old = [at for at in proposed.get(summary.host, []) if now < at + PROPOSAL_KEEP_S]
            proposed[summary.host] = old[max(0, launches - before) :]
            if position > known.get(summary.host, (-1, free))[0]:
                known[summary.host] = (position, free)
        placer.receive([], now)
        for name, (_, free) in known.items():
            room = free
            for made_at in proposed[name]:
                if now < made_at + PROPOSAL_KEEP_S:
                    room -= need
            held = placer.index.free[:PORTS, placer.index.rows[name]].tolist()
            assert tuple(held) == room.amounts()


def drive(placer: Placer, rng: random.Random, count: int, steps: int) -> list[object]:
    """A long life of a placer: batches and single members among changes of hosts."""
    answers: list[object] = []
    position = 1
    for step in range(steps):
        now = step * 0.01
        dice = rng.random()
        if dice < 0.25:
            position += 1
            some = [f"h{rng.randrange(count)}" for _ in range(rng.choice([1, 3, 40]))]
            changed = [
                host(
                    name,
                    res(rng.randrange(9), rng.randrange(9), 9, int(name[1:]) % 10 == 0),
                    position,
                    up=rng.random() < 0.95,
                    labels=(Label("side", rng.choice("ab")),),
                )
                for name in dict.fromkeys(some)
            ]
            gone = (Key(f"host/h{rng.randrange(count)}"),) if rng.random() < 0.2 else ()
            answers.append(report(placer, changed, position, now=now, gone=gone))
        else:
            constraint = rng.choice([None, label("host", "side", "a")])
            strategy = rng.choice(["pack", "spread"])
            need = res(rng.choice([0.5, 1, 3]), rng.randrange(4), 0, rng.choice([0, 0, 0, 1]))
            members = rng.choice([1, 1, 1, 2, 7, 60])
            shape = Shape(need, constraint=constraint, strategy=strategy)
            answers.append((shape, members, place(placer, shape, members, now=now)))
    return answers


@pytest.mark.parametrize(
    ("count", "steps", "block_max"),
    [(40, 1500, BLOCK_MAX), (40, 1500, 2), (3000, 700, BLOCK_MAX), (3000, 300, 5)],
)
def test_kept_orders_find_what_vectors_find(
    count: int, steps: int, block_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many hosts and small blocks make blocks that are divided, passed by and emptied."""
    monkeypatch.setattr(sorted_rows, "BLOCK_MAX", block_max)
    hosts = [
        host(f"h{n}", res(n % 9, n % 7, 9, n % 10 == 0), labels=(Label("side", "ab"[n % 2]),))
        for n in range(count)
    ]
    lives = [
        drive(
            placer_of(hosts, PlacerSettings(mend_rows=mend, kept_max=0)),
            random.Random(5),
            count,
            steps,
        )
        for mend in (0, 1_000_000, None)
    ]
    for step in zip(*lives, strict=True):
        assert step[0] == step[1] == step[2]


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from hosts import place, host, label, res, placer_of
from peloton.placement.messages import Label, Shape
hosts = [host(f"h{n}", res(n % 7, n % 5, 9), labels=(Label("r", str(n % 3)),)) for n in range(200)]
placer = placer_of(hosts)
for n in range(300):
    rack = label("host", "r", str(n % 3)) if n % 2 else None
    shape = Shape(res(0.3 + n % 4), 0, rack, ("pack", "spread")[n % 5 == 0])
    print(place(placer, shape, 1 + n % 30))
"""


def test_the_seed_of_hashes_changes_nothing(root: Path) -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1]
    assert answers[0].count(b"\n") == 300
