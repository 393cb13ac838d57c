"""Few members are placed by look-ups as a scan of all hosts would place them.

The same life of a placer is lived twice: once with look-ups, once with strategies that have no
kept order, so that each wish is a scan.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from msgspec.structs import replace

from peloton.placement import lookups, sorted_cache, sorted_rows
from peloton.placement.conditions import EXCLUSIVE, HOST_POOL
from peloton.placement.constraints import allowance
from peloton.placement.messages import (
    Constraint,
    Declined,
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    Shape,
    Unplaced,
    Wish,
)
from peloton.placement.needs import PORTS
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.reasons import HostChecks
from peloton.placement.row_checks import RowChecks
from peloton.placement.strategies import STRATEGIES
from peloton.runtime.vocabulary import Bits, Key, Message

from .hosts import INVENTORY, SLICE, host, label, placer_of, report, res

SCANS = {name: replace(strategy, sign=0) for name, strategy in STRATEGIES.items()}
RACKS = 12


def the_host(at: int, rng: random.Random, position: int) -> HostSummary:
    """A host that may be exclusive, pooled, down, or tell nothing of its tasks."""
    rack = at if rng.random() < 0.9 else at + 1
    labels = [Label("rack", f"r{rack % RACKS}"), Label("side", rng.choice("ab"))]
    if at % 17 == 0:
        labels.append(Label(EXCLUSIVE, "x"))
    if at % 7 == 0:
        labels.append(Label(HOST_POOL, rng.choice(["shared", "gold"])))
    running = {
        Label("app", rng.choice("uvw")): rng.randrange(1, 4) for _ in range(rng.randrange(3))
    }
    return host(
        f"h{at}",
        res(rng.randrange(9), rng.randrange(9), 9, int(at % 10 == 0)),
        position,
        up=rng.random() < 0.95,
        labels=tuple(labels),
        ports=rng.randrange(5),
        quarantined=at % 23 == 0 and rng.random() < 0.5,
        running=tuple(sorted(running.items())) if rng.random() < 0.9 else None,
        launches=position,
    )


def a_constraint(rng: random.Random, count: int) -> Constraint | None:
    def leaf() -> Constraint:
        return rng.choice(
            [
                label("host", "rack", f"r{rng.randrange(RACKS)}"),
                label("host", "rack", f"r{rng.randrange(RACKS)}", "equal", 1),
                label("host", "side", "a", "less", 1),
                label("host", "hostname", f"h{rng.randrange(count)}"),
                label("host", "hostname", f"h{rng.randrange(count)}", "equal", 0),
                label("host", EXCLUSIVE, "x"),
                label("host", HOST_POOL, rng.choice(["default", "shared", "gold"])),
                label("host", HOST_POOL, "gold", "less", 1),
                label("task", "app", rng.choice("uvw")),
                label("task", "app", rng.choice("uvw"), "less", rng.randrange(1, 4)),
                label("task", "job", f"j{rng.randrange(3)}", "less", rng.randrange(1, 3)),
                label("task", "job", f"j{rng.randrange(40)}", "equal", rng.randrange(2)),
                label("moon", "rack", "r1"),
            ]
        )

    dice = rng.random()
    if dice < 0.2:
        return None
    if dice < 0.6:
        return leaf()
    members = tuple(leaf() for _ in range(rng.randrange(4)))
    return Constraint(rng.choice(["and", "and", "and", "or", "xor"]), members=members)


def a_shape(rng: random.Random, count: int) -> Shape:
    job = Label("job", f"j{rng.randrange(rng.choice([3, 40]))}")
    strategy = rng.choice(["pack", "spread"])
    return Shape(
        res(rng.choice([0.5, 1, 3]), rng.randrange(4), 0, rng.choice([0, 0, 0, 1])),
        ports=rng.choice([0, 0, 0, 1, 2]),
        constraint=a_constraint(rng, count),
        strategy=strategy,
        labels=rng.choice([(), (job,), (job, job)]),
        apart=rng.choice([None, job]),
        fixed_ports=rng.choice([(), (), (), (8000,), (8001, 8002)]),
    )


def live(placer: Placer, *, count: int, steps: int, seed: int) -> list[object]:
    """What a placer answers to wishes, refusals and declined proposals among changes of hosts."""
    rng, answers, shapes = random.Random(seed), [], []
    known: list[Placed] = []
    for step in range(2, steps):
        dice = rng.random()
        sent: Message
        if dice < 0.2:
            changed = [
                the_host(at, rng, step) for at in rng.sample(range(count), rng.choice([1, 9]))
            ]
            gone = (Key(f"host/h{rng.randrange(count)}"),) if rng.random() < 0.1 else ()
            sent = HostDeltas(INVENTORY, step, tuple(changed), gone=gone)
        elif dice < 0.25 and known:
            one = rng.choice(known)
            sent = Declined(SLICE, Bits(), one.hosts[:2], one.shape)
        else:
            if len(shapes) < 12 or rng.random() < 0.4:
                shapes.append(a_shape(rng, count))
            members = Bits.span(0, rng.choice([1, 1, 1, 1, 2, 5, 30]))
            refused = ()
            if rng.random() < 0.1:
                refused = (the_host(rng.randrange(count), rng, step),)
            sent = Wish(SLICE, step, members, rng.choice(shapes[-12:]), refused=refused)
        got = [send.message for send in placer.receive([(SLICE, sent)], step * 0.01)]
        known += [answer for answer in got if isinstance(answer, Placed)]
        answers.append((sent, got))
    return answers


def agrees(placer: Placer, shape: Shape) -> None:
    """What one host accepts is what the checks of all hosts say of it."""
    index, most = placer.index, 9
    rows = RowChecks(index, HostChecks(index), shape=shape)
    flags, open_hosts, limits = rows.flags(), HostChecks(index).open_to(shape), []
    for row in range(index.size):
        assert rows.allows(row) == flags[row]
        limits.append(rows.room(row, most) if rows.open(row) else 0)
    expected = np.minimum(allowance(shape, index), most)
    if shape.apart is not None:
        expected = np.minimum(expected, index.task_counts(shape.apart) == 0)
    if shape.ports:
        expected = np.minimum(expected, index.free[PORTS] // shape.ports)
    # Where conditions on hosts fail, the checks of all hosts say so in `open_to` alone.
    of_tasks = (limits == expected) | ~open_hosts
    assert of_tasks.all()


@pytest.mark.parametrize(("seed", "mend_rows"), [(0, None), (1, None), (2, 1_000_000)])
@pytest.mark.parametrize(
    ("count", "steps", "limit"), [(30, 600, None), (400, 600, None), (400, 600, 2)]
)
def test_a_look_up_chooses_as_a_scan_does(
    seed: int,
    mend_rows: int | None,
    count: int,
    steps: int,
    limit: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Low limits make look-ups give up, and orders be evicted."""
    if limit is not None:
        monkeypatch.setattr(sorted_rows, "REFUSED_MAX", limit)
        monkeypatch.setattr(sorted_rows, "BLOCK_MAX", limit)
        monkeypatch.setattr(sorted_cache, "KEPT_MAX", limit)
        monkeypatch.setattr(sorted_cache, "SCOPED_MAX", limit)
        monkeypatch.setattr(lookups, "COMPARED_FIRST_MAX", limit)
    rng = random.Random(seed)
    hosts = [the_host(at, rng, 1) for at in range(count)]
    settings = PlacerSettings(mend_rows=mend_rows, kept_max=0, scarce_gpu=seed % 2 == 1)
    scans = Placer(Key("placer/0"), settings, strategies=SCANS)
    report(scans, hosts, 1, snapshot=True)
    looks = placer_of(hosts, settings)
    expected = live(scans, count=count, steps=steps, seed=seed)
    found = live(looks, count=count, steps=steps, seed=seed)
    for place in zip(expected, found, strict=True):
        assert place[0] == place[1]
    for _ in range(60):
        agrees(looks, a_shape(rng, count))
    placed = [each for _, got in found for each in got if isinstance(each, Placed)]
    assert len(placed) > steps / 6
    assert any(isinstance(each, Unplaced) for _, got in found for each in got)
