"""Detects from outside which rare branches a storm reached.

Turns committed frames, replies of the store, states of the world and the stories at the end into
names of `branches.py`. Nothing may be changed or drawn, or seeds would play other storms. States
are inspected every few steps only, which costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from peloton.actors.job.slice.facts import MembersBegun, SliceGoalSet, SliceOpened
from peloton.chaos.cluster import branches, tiny
from peloton.chaos.cluster.checks import ClusterChecks
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.chaos.cluster.world.history import Asked
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.journal.statements import (
    DeleteSegment,
    FrameRow,
    InsertRow,
    NoneApplied,
    NotApplied,
    Statement,
    StatementFailed,
    StatementReply,
)
from peloton.runtime.core.shard import Shard
from peloton.runtime.ports import EndedRow, ShardId
from peloton.runtime.shells.peer import PeerShell
from peloton.runtime.simulation.cells import RowKey
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Absent, Key, kind_of

INSPECT_EVERY_STEPS = 20
LONG_S = 60.0
KEY_REUSED = "same key, other body: refused"
HEALTH = {
    "out of reach": "peer out of reach",
    "unclear": "journal unclear",
    "session": "session in doubt",
    "recovering": "recovering",
}
LINKS = {
    "gaps": "a gap in the parcels",
    "repeats": "a parcel twice",
}


class Observer:
    """Observes one storm run."""

    def __init__(self, storm: Storm, cluster: SimulatedCluster, *, checks: ClusterChecks) -> None:
        self._storm = storm
        self._cluster = cluster
        self._world = cluster.world
        self._checks = checks
        self._limits = storm.scenario.limits
        self._not_hit = tiny.by_place(storm.scenario.limits)
        self._reached: dict[str, None] = {}
        self._owners: dict[ShardId, int] = {}  # the epoch whose recovery was seen
        self._lazy: dict[ShardId, int] = {}  # the epoch of an owner that held facts back
        self._vanished: dict[str, None] = {}
        self._never_begun: dict[ShardId, dict[Key, None]] = {}
        self.calm_at_s = 0.0
        checks.core.on_frame.append(self._committed)
        self._world.on_replies.append(self._replied)
        self._world.checks.append(self._inspect)

    def reached(self, calm_s: float) -> tuple[str, ...]:
        """Return the names of all branches reached, once all goals are reached."""
        if calm_s == 0.0:
            self._state("nothing waits at the calm")
        if calm_s > LONG_S:
            self._state("long way back")
        self._clients()
        if self._cluster.machines.listed_sets:
            self._state("runs listed as sets")
        if self._checks.feeds.gaps:
            self._state("a gap in a feed")
        if self._checks.core.checked["damage"]:
            self._state("a damaged shard")
        for core in self._world.shards().values():
            for line in core.turns.story._lines:
                self._reason(kind_of(line.key), line.because)
        return tuple(sorted(name for name in self._reached if name in branches.BRANCHES))

    # ---- events ----

    def _committed(self, frame: DecodedFrame) -> None:
        for entry in frame.entries:
            kind = kind_of(entry.key)
            for fact in entry.facts:
                name = type(fact).__name__
                self._reached[branches.fact_name(kind, name, cause=entry.cause)] = None
            if kind == "slice" and _never_began(entry):
                self._state("a slice ended before it began")
                self._never_begun.setdefault(frame.shard, {})[entry.key] = None
            self._reason(kind, entry.because)

    def _reason(self, kind: str, because: str) -> None:
        if because:
            for of, reason in branches.REASONS:
                if of == kind and because.startswith(reason):
                    self._reached[branches.reason_name(of, reason)] = None

    def _replied(
        self, daemon: SimulatedDaemon, sent: list[tuple[Statement, StatementReply]]
    ) -> None:
        for statement, reply in sent:
            for name in _hit_in_store(statement, self._limits):
                self._hit(name)
            if isinstance(reply, StatementFailed | NotApplied | NoneApplied):
                text = reply.text if isinstance(reply, StatementFailed) else type(reply).__name__
                name = type(statement).__name__
                if isinstance(statement, InsertRow):
                    name += f" {type(statement.row).__name__}"
                self._reached[branches.statement_name(name, text)] = None

    def _hit(self, limit: str) -> None:
        self._reached[branches.limit_name(limit)] = None
        for names in self._not_hit:
            names.pop(limit, None)

    def _state(self, name: str) -> None:
        assert name in branches.STATES, name
        self._reached[f"world: {name}"] = None

    # ---- states ----

    def _inspect(self) -> None:
        if self._world.stepper.steps % INSPECT_EVERY_STEPS:
            return
        open_now: dict[ShardId, list[tuple[SimulatedDaemon, Shard]]] = {}
        for daemon in self._world.daemons.values():
            for shard, core in daemon.shards().items():
                open_now.setdefault(shard, []).append((daemon, core))
            self._daemon(daemon)
        for shard, owners in open_now.items():
            self._shard(shard, owners)
        if len(open_now) < sum(self._world.sizes.values()):
            self._state("nobody owns a shard")
        if not self._world.living():
            self._state("nobody")
        self._machines()

    def _shard(self, shard: ShardId, owners: list[tuple[SimulatedDaemon, Shard]]) -> None:
        if len(owners) > 1:
            self._state("two owners")
        newest = self._world.store.registers.registers[shard].epoch
        node = self._world.ensemble.owners.get(shard, "")
        for daemon, core in owners:
            if core.epoch < newest:
                is_still = daemon.process is not None and daemon.process.frozen
                self._state("a frozen owner overtaken" if is_still else "an old owner wakes")
            if not node.startswith(f"{daemon.name}."):
                self._state("an owner without its node")
            if core.epoch_filter.refused:
                self._state("mail of an older epoch refused")
            for name in [*tiny.hit_in_shard(core, self._not_hit.shards)]:
                self._hit(name)
            if self._owners.get(shard, 0) < core.epoch:
                self._owners[shard] = core.epoch
                if 0 < self._lazy.get(shard, 0) < core.epoch:
                    self._state("held facts lost")
                self._recovered(shard, core)
            self._lazy[shard] = core.epoch if core.lazy else 0

    def _recovered(self, shard: ShardId, core: Shard) -> None:
        row = self._world.store.registers.registers[shard]
        if core.epoch == 1:
            return
        if core.epoch > 5:
            self._state("the sixth owner")
        if any(key not in core.population.cells for key in self._never_begun.get(shard, ())):
            self._state("recovery behind a slice that ended before it began")
        tail = row.last_position > row.floor
        if row.floor:
            self._state("recovery from a checkpoint" + (" and a tail" if tail else ""))
            if 0 < row.floor_epoch < core.epoch - 1:
                self._state("a checkpoint of an older epoch")
        elif tail:
            self._state("recovery from a tail")
        for where, rows in self._world.store.cells.rows.items():
            if where.shard == shard and where.table == "checkpoint":
                position, epoch = int(where.key[0]), int(where.key[1])
                if position > row.floor and epoch < core.epoch:
                    self._state("a checkpoint left behind")
            elif where.shard == shard and where.table == "journal" and _has_losers(rows):
                self._state("a frame behind a takeover")

    def _daemon(self, daemon: SimulatedDaemon) -> None:
        if daemon.root is None or daemon.process is None:
            return
        for reason in daemon.root.region.health()[1]:
            for text, name in HEALTH.items():
                if text in reason:
                    self._state(name)
        for shell in daemon.process.shells:
            if self._not_hit.shells:
                for limit in [*tiny.hit_in_shell(shell, self._not_hit.shells)]:
                    self._hit(limit)
            if type(shell) is PeerShell:
                self._links(shell)
        for node in self._world.ensemble.members.values():
            if node.unfit:
                self._state("unfit")
            if node.leaving:
                self._state("leaving")

    def _links(self, shell: PeerShell) -> None:
        if shell.counts["refused"]:
            self._state("a batch for no route")
        for link in shell.links.values():
            for counted, name in LINKS.items():
                if link.counts[counted]:
                    self._state(name)

    def _machines(self) -> None:
        machines = self._cluster.machines
        if any(host in machines.cut_off for host, _ in machines.ended.values()):
            self._state("ended while cut off")
        self._vanished.update(machines.gone)
        if any(run in machines.running for run in self._vanished):
            self._state("alive again")

    def _clients(self) -> None:
        for request in self._cluster.clients.requests:
            operation = request.operation
            if not operation.known:
                continue
            if operation.tries >= 3:
                self._state("sent three times")
            if (operation.ended_s or 0.0) > self.calm_at_s > operation.begun_s:
                self._state("answered after the storm")
            if operation.what is Asked.LIST:
                self._state("a listing")
            if isinstance(operation.answer, Absent):
                self._state("absent")
        if self._storm.struck[KEY_REUSED]:
            self._state("key reused")


def _has_losers(rows: Iterable[RowKey]) -> bool:
    """Return whether two epochs have written a frame of the same position."""
    keys = [*rows]
    return len(keys) > len({(position, part) for position, _, part in keys})


def _never_began(entry: Entry) -> bool:
    """Return whether an open slice is stopped of which no member had begun.

    The lowest member begins first: if it begins in the frame that stops the slice, none had begun.
    """
    facts = {type(fact): fact for fact in entry.facts}
    begun = facts.get(MembersBegun)
    stopped = SliceGoalSet in facts and SliceOpened not in facts
    return stopped and isinstance(begun, MembersBegun) and 0 in begun.members


def _hit_in_store(statement: Statement, limits: Mapping[str, int | float]) -> Iterator[str]:
    """Yield the limits that are met by a statement to the store."""
    if isinstance(statement, DeleteSegment) and "segment_frames" in limits:
        yield "segment_frames"
    if not isinstance(statement, InsertRow):
        return
    row = statement.row
    if isinstance(row, FrameRow) and row.part and "frame_part_bytes_max" in limits:
        yield "frame_part_bytes_max"
    left = isinstance(row, EndedRow) and row.kind == "job" and not row.deleted
    if left and "finished_jobs_max" in limits:
        yield "finished_jobs_max"
