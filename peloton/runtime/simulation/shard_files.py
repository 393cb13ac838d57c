"""What the store of the memory journal keeps of one shard, and the steps that change it.

Each step may be done twice, and the second time changes nothing. The module must not lose a reply,
nor know who waits for it; the journal does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from peloton.runtime.core.journal import chain, register, rounds
from peloton.runtime.core.journal.register import OwnedShard, RoundPlan
from peloton.runtime.core.journal.rounds import Refusals
from peloton.runtime.core.journal.statements import FrameRow, PartRow, RegisterRow
from peloton.runtime.ports import EndedRow, Fenced


class StepSuperseded(Exception):
    """The register has a newer epoch."""


class ShardFiles:
    """What the store keeps of one shard."""

    def __init__(self) -> None:
        self.register = RegisterRow(0, b"", "", 0, chain.GENESIS, 0, 0)
        self.frames: dict[int, tuple[FrameRow, ...]] = {}
        self.checkpoints: dict[tuple[int, int], list[PartRow]] = {}
        self.ended: dict[tuple[str, str], dict[int, EndedRow]] = {}


class MemoryRound:
    """The frames of one round. The store takes all of them in one step, or none."""

    def __init__(self, members: Sequence[tuple[ShardFiles, OwnedShard, RoundPlan]]) -> None:
        self.members = members
        self.refusals: Refusals | None = None
        """Whose frames are refused, once that was answered."""
        self._taken = False

    def append(self) -> Refusals:
        """May be done again, and then changes nothing."""
        superseded = [
            owned for files, owned, _ in self.members if files.register.epoch != owned.epoch
        ]
        if not superseded and not self._taken:
            for files, _, plan in self.members:
                _append(files, plan)
            self._taken = True
        fenced = {
            owned.shard: Fenced(f"{owned.shard}: overtaken at append", definite=not self._taken)
            for owned in superseded
        }
        if not self._taken:
            return rounds.with_the_others(fenced, [owned.shard for _, owned, _ in self.members])
        for _, owned, plan in self.members:
            if owned.shard not in fenced:
                register.frame_done(owned, plan)
        return {**fenced}


def _append(files: ShardFiles, plan: RoundPlan) -> None:
    position = plan.frame_rows[0].position
    files.frames[position] = plan.frame_rows
    files.register = msgspec.structs.replace(
        files.register, last_position=position, last_chain=plan.chain, op=plan.op
    )


def bump(files: ShardFiles, op: bytes, *, owner: str, above: int) -> None:
    """A claim, of the first epoch above both."""
    row, epoch = files.register, max(files.register.epoch, above) + 1
    files.register = msgspec.structs.replace(row, epoch=epoch, op=op, owner=owner)


def fence(files: ShardFiles, owned: OwnedShard) -> None:
    """Raise StepSuperseded if the register has a newer epoch than the owned."""
    if files.register.epoch != owned.epoch:
        raise StepSuperseded


def end(files: ShardFiles, owned: OwnedShard, *, plan: RoundPlan) -> None:
    """The ended rows of the plan."""
    fence(files, owned)
    for row in plan.work.ended:
        files.ended.setdefault((row.kind, row.key), {})[row.position] = row


def write_parts(files: ShardFiles, owned: OwnedShard, *, plan: RoundPlan) -> None:
    """The checkpoint parts of the plan."""
    fence(files, owned)
    for row in plan.part_rows:
        rows = files.checkpoints.setdefault((row.position, row.epoch), [])
        rows[row.number :] = [row]
    register.parts_done(owned, plan)


def move_floor(files: ShardFiles, owned: OwnedShard, *, plan: RoundPlan) -> None:
    """Recovery starts from the checkpoint of the plan."""
    fence(files, owned)
    assert plan.written is not None
    files.register = msgspec.structs.replace(
        files.register, floor=plan.written.position, floor_epoch=owned.epoch, op=plan.floor_op
    )
    register.floor_done(owned, plan)


def cut(files: ShardFiles, owned: OwnedShard) -> None:
    """Frames up to the previous floor go, and every checkpoint but three: the named one, the
    previous one, and the one being written."""
    fence(files, owned)
    assert owned.manifest is not None
    previous = owned.manifest.previous
    writing = (owned.writing.position, owned.epoch) if owned.writing is not None else None
    kept = (owned.floor[:2], previous[:2], writing)
    files.frames = {at: rows for at, rows in files.frames.items() if at > previous[0]}
    files.checkpoints = {at: rows for at, rows in files.checkpoints.items() if at in kept}
