"""Drawn histories of two processes on two shards: every journal answers as a plain model does.

The model knows nothing of ops, chains or rows; it must stay so simple that it is plainly right.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    ShardId,
    Work,
)
from tests.contracts.journals import GROUPS, OTHER, RIGS, SERVED, SHARD, build

EXAMPLES, SLOW_EXAMPLES = 200, 30
"""The second of those that write to a disk, and wait for it."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "frame", "frame", "ended", "delete", "floor", "cut", "reopen"]),
        st.integers(0, 1),
        st.sampled_from([SHARD, OTHER]),
        st.binary(max_size=5),
    ),
    max_size=25,
)


class Model:
    """One shard: who owns it, all frames ever, where the floor is, how each key ended."""

    def __init__(self) -> None:
        self.epoch = 0
        self.owner: int | None = None
        self.frames: list[bytes] = []
        self.floor = 0
        self.ended: dict[str, bytes | None] = {}

    def work(self, step: str, shard: ShardId, body: bytes) -> Work | None:
        """What the owner may ask for now; None if the step makes no sense."""
        last = len(self.frames)
        if step == "frame":
            return Work(shard, self.epoch, Frame(last + 1, body))
        if step in ("ended", "delete"):
            row = EndedRow("kind", f"key {last % 3}", last + 1, body, step == "delete")
            return Work(shard, self.epoch, Frame(last + 1, body), ended=(row,))
        if step == "floor" and last > self.floor:
            part = CheckpointPart(last, 0, b"state %d" % last, True)
            return Work(shard, self.epoch, parts=(part,), floor=Floor(last))
        return Work(shard, self.epoch, cut=Cut()) if step == "cut" else None

    def done(self, work: Work) -> None:
        if work.frame is not None:
            self.frames.append(work.frame.body)
        for row in work.ended:
            self.ended[row.key] = None if row.deleted else row.body
        if work.floor is not None:
            self.floor = work.floor.position


History = list[tuple[str, int, ShardId, bytes]]
drawn = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@pytest.mark.parametrize("name", sorted({*RIGS} - {"sqlite"}))
@drawn
@given(steps=STEPS)
def test_a_journal_answers_as_the_model(name: str, steps: History) -> None:
    check_history(name, steps)


@pytest.mark.parametrize("name", ["sqlite", *SERVED])
@settings(drawn, max_examples=SLOW_EXAMPLES)
@given(steps=STEPS)
def test_a_journal_on_a_disk_or_a_server_answers_as_the_model(name: str, steps: History) -> None:
    check_history(name, steps)


def check_history(name: str, steps: History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rig = build(name, Path(folder))
        journals = [rig.open(), rig.open()]
        journals[0].bootstrap(GROUPS)
        models = {SHARD: Model(), OTHER: Model()}
        held: dict[tuple[int, ShardId], int] = {}
        for step, who, shard, body in steps:
            model = models[shard]
            if step == "reopen":
                journals[who].close()
                journals[who] = rig.open()
                held = {key: epoch for key, epoch in held.items() if key[0] != who}
            elif step == "claim":
                model.epoch, model.owner = model.epoch + 1, who
                held[who, shard] = model.epoch
                floor_epoch = check_load(journals[who].claim(shard, "x"), model)
                assert (floor_epoch == 0) == (model.floor == 0)
                loaded = list(journals[who].read_checkpoint(shard))
                assert loaded == ([b"state %d" % model.floor] if model.floor else [])
                tail = [frame.body for frame in journals[who].read_tail(shard)]
                assert tail == model.frames[model.floor :]
            elif (work := model.work(step, shard, body)) is not None:
                (answer,) = journals[who].commit([work])
                if held.get((who, shard)) == model.epoch:
                    assert isinstance(answer, Committed)
                    model.done(work)
                else:
                    assert isinstance(answer, Fenced)
            for key, ended in model.ended.items():
                row = journals[who].read_ended(shard, kind="kind", key=key)
                assert (row.body if row is not None else None) == ended
        rig.close()


def check_load(claimed: object, model: Model) -> int:
    assert isinstance(claimed, Claimed)
    assert claimed.epoch == model.epoch
    assert (claimed.last_position, claimed.floor) == (len(model.frames), model.floor)
    return claimed.floor_epoch
