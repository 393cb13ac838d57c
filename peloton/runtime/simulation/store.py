"""The store of all simulated daemons, with the faults of a real store with conditional writes.

Turns the statements of `core/journal/statements.py` into replies, as a fleet's store would on a bad
day: eleven behaviours, each drawn from one `random.Random` and counted in `struck`. A call takes no
time; a late effect happens at its time, before any later call. `FencedRows` makes a Journal of each
daemon's `rows(member)`. Retries and repairs are the task of the protocol under test. The store must
not be worse than a real one: what it has acknowledged stays, unless `flush_s` makes it flush its
commit log too late.

The eleven, and where each comes from:
 1. `lose_reply`         the statement is carried out, its answer does not arrive
 2. `hold`               a conditional write times out, and is begun later, if its condition holds
 3. `either_order`       a held write and its retry meet: either comes first
 4. `condition_columns`  a refusal has the columns of the condition, nothing else: always so
 5. `complete_by_read`   a write times out half accepted; the next linearizable access to the row
                         completes it, or drops it
 6. `stale_read`         a register read below SERIAL returns an old row while a write is in flight
 7. `unavailable`        refused, and nothing was changed
 8. `reorder_plain`      statements sent together are done in any order, and a plain write that
                         timed out lands behind later ones
 9. `plain_after_delete` a write is delivered after a delete of its partition; times decide, and
                         the daemons' clocks differ by up to `skew_s`
10. `power_cut`          the store loses what was on its way and, with `flush_s`, what it had
                         acknowledged since the last flush
11. `flicker`            a plain write that is on its way shows in some reads, and not in others
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from peloton.runtime.core.journal.statements import (
    Applied,
    Bump,
    ConditionalWrite,
    CreateCluster,
    DeleteBucket,
    DeleteSegment,
    Free,
    GrowCluster,
    InsertRow,
    NameCluster,
    NoneApplied,
    NotApplied,
    PlainWrite,
    ReadCluster,
    ReadName,
    ReadRegister,
    ReadStatement,
    RegisterRow,
    RegisterWrite,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
    WriteStored,
    WriteTogether,
    single_writes,
)
from peloton.runtime.ports import ClusterRecord, ShardId
from peloton.runtime.shells.shell import Clock
from peloton.runtime.simulation.cells import Cells, partition
from peloton.runtime.simulation.draws import FaultDraws
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.simulation.quorum_reads import Late, PlainRead, QuorumReads, with_some

CLUSTER_WRITES = (CreateCluster, GrowCluster, NameCluster)
COMPLETED = 0.5
"""Share of half accepted writes that a later access completes; the others are dropped."""
OVERTAKEN_MAX = 20
"""How many later statements may overtake one that is late, at the same time."""
NEVER_DONE = 1 << 62
REGISTERS_KEPT_MAX = 3
"""How many register rows back a read at ONE may be."""


class Level(enum.Enum):
    """The consistency level at which a daemon reads registers; the protocol asks for SERIAL."""

    SERIAL = "serial"
    QUORUM = "quorum"
    ONE = "one"


class StoreFaults(Struct, frozen=True, kw_only=True):
    """The strength of each fault: probabilities per statement unless a unit says otherwise."""

    lose_reply: float = 0.0
    hold: float = 0.0
    hold_turnover: float = 0.0  # as `hold`, for the writes that change the owner
    either_order: float = 0.0
    complete_by_read: float = 0.0
    stale_read: float = 0.0
    unavailable: float = 0.0
    reorder_plain: float = 0.0
    plain_after_delete: float = 0.0
    power_cut: float = 0.0
    flicker: float = 0.0
    late_s: float = 20.0  # late effects happen within this time
    skew_s: float = 0.0  # a daemon's clock is off by at most this
    flush_s: float = 0.0  # time between flushes of the commit log; 0: before each answer


CALM_STORE = StoreFaults()
FAULT_KINDS = (
    "lose_reply", "hold", "hold_turnover", "either_order", "condition_columns", "complete_by_read",
    "stale_read",
    "unavailable", "reorder_plain", "plain_after_delete", "power_cut", "cut",
    "flicker",
)  # fmt: skip


class Flushed(NamedTuple):
    """The state that survives a power cut."""

    at_s: float
    cluster: ClusterRecord | None
    name: str
    registers: dict[ShardId, RegisterRow]
    cells: Cells


class SimulatedStore:
    """The tables, the statements on their way to them, and the daemons cut off."""

    def __init__(
        self, chance: random.Random, clock: Clock, *, faults: StoreFaults = CALM_STORE
    ) -> None:
        self.chance = chance
        self.clock = clock
        self.faults = faults
        self._draws = FaultDraws(chance, faults=FAULT_KINDS)
        self.struck = self._draws.struck
        self.uses = 0  # calls since which nothing else can have changed a row
        self.registers = MemoryRows()  # only its tables with conditional writes are used
        self.cells = Cells()
        self.reads = QuorumReads()
        self._before: dict[ShardId, list[RegisterRow]] = {}
        self._accepted: dict[ShardId, RegisterWrite | WriteTogether] = {}
        self._late: list[Late] = []
        self._received = 0
        self._cut: dict[str, None] = {}
        self._flushed: Flushed | None = None

    # ---- what a world calls ----

    def rows(self, member: str, *, level: Level = Level.SERIAL) -> MemberRows:
        """Return the store as one daemon reaches it."""
        return MemberRows(self, member, level=level)

    def cut(self, member: str) -> None:
        """Cut the daemon off from the store; what it sent before is still on its way."""
        self._cut[member] = None

    def mend(self, member: str) -> None:
        """Let the daemon reach the store again."""
        self._cut.pop(member, None)

    @property
    def on_its_way(self) -> int:
        """How many statements may still be applied."""
        return len(self._late) + len(self._accepted)

    def advance(self) -> None:
        """Apply what is due by now."""
        self.uses += 1
        now_s = self.clock.now()
        due = [late for late in self._late if late.at_s <= now_s or late.received <= self._received]
        if due:
            self._late = [late for late in self._late if late not in due]
            for late in sorted(due, key=lambda late: late.at_s):
                self._do(late)
        flush_s, last = self.faults.flush_s, self._flushed
        if flush_s and (last is None or now_s - last.at_s >= flush_s):
            registers = dict(self.registers.registers)
            record = self.registers
            self._flushed = Flushed(
                now_s, record.cluster, record.name, registers, self.cells.copy()
            )

    def power_cut(self) -> None:
        """Cut the power: all servers lose their memory at once, and restart."""
        self.uses += 1
        self.struck["power_cut"] += 1
        self._late.clear()
        for shard in list(self._accepted):
            if shard in self._accepted and self.chance.random() >= COMPLETED:
                self._take_accepted(shard)
        if self.faults.flush_s and self._flushed is not None:
            _, self.registers.cluster, self.registers.name, registers, cells = self._flushed
            self.registers.registers = dict(registers)
            self.cells = cells.copy()
            self._accepted.clear()

    # ---- statements ----

    def run(self, sender: MemberRows, statements: Sequence[Statement]) -> list[StatementReply]:
        """Run statements as the port says, for one daemon."""
        self.uses += 1
        if sender.member in self._cut:
            self.struck["cut"] += len(statements)
            return [
                StatementFailed(f"{sender.member} does not reach the store") for _ in statements
            ]
        order = list(range(len(statements)))
        if len(order) > 1 and self._draws.strikes("reorder_plain", self.faults.reorder_plain):
            self.chance.shuffle(order)
        replies: dict[int, StatementReply] = {}
        for at in order:
            self.advance()
            replies[at] = self._run(sender, statements[at])
        return [replies[at] for at in range(len(statements))]

    def _run(self, sender: MemberRows, statement: Statement) -> StatementReply:
        faults = self.faults
        self._received += 1
        if faults.power_cut and self.chance.random() < faults.power_cut:
            self.power_cut()
            return StatementFailed("connection closed")
        if self._draws.strikes("unavailable", faults.unavailable):
            return StatementFailed("unavailable")
        if isinstance(statement, ConditionalWrite):
            reply = self._conditional(statement)
        elif isinstance(statement, PlainWrite):
            reply = self._plain(statement, self._stamp_us(sender))
        else:
            reply = self._read(statement, sender.level)
        if not isinstance(reply, StatementFailed) and self._draws.strikes(
            "lose_reply", faults.lose_reply
        ):
            return StatementFailed("timeout, though it was done")
        return reply

    def _conditional(self, statement: ConditionalWrite) -> StatementReply:
        behind = self._met(statement)
        turns_over = isinstance(statement, Bump | Free)
        late = turns_over and self._draws.strikes("hold_turnover", self.faults.hold_turnover)
        if late or self._draws.strikes("hold", self.faults.hold):
            self._keep(statement, 0)
            reply: StatementReply = StatementFailed("timeout, before it was begun")
        else:
            reply = self._decide(statement, may_rest=True)
        if behind is not None:
            self._do(behind)
        return reply

    def _met(self, statement: ConditionalWrite) -> Late | None:
        """Let a retry meet its original, which is applied now, or returned to be applied later."""
        held = [late for late in self._late if late.statement == statement]
        if not held or not self._draws.strikes("either_order", self.faults.either_order):
            return None
        self._late.remove(held[0])
        if self.chance.random() < 0.5:
            return held[0]
        self._do(held[0])
        return None

    def _decide(self, statement: ConditionalWrite, *, may_rest: bool) -> StatementReply:
        """Run one round of agreement. A write whose condition holds may stay half accepted."""
        if isinstance(statement, CLUSTER_WRITES):
            return self.registers.run([statement])[0]
        shards = [each.shard for each in single_writes(statement)]
        for shard in shards:
            self._complete(shard)
        registers = self.registers.registers
        before = {shard: registers[shard] for shard in shards if shard in registers}
        (reply,) = self.registers.run([statement])
        if isinstance(reply, NotApplied | NoneApplied):
            self.struck["condition_columns"] += 1
        if not isinstance(reply, Applied) or not before:
            return reply
        rest = self.faults.complete_by_read
        if may_rest and rest and self.chance.random() < rest:
            self.registers.registers.update(before)
            self._accepted.update(dict.fromkeys(shards, statement))
            return StatementFailed("timeout, half accepted")
        for shard, row in before.items():
            self._before.setdefault(shard, []).append(row)
            del self._before[shard][:-REGISTERS_KEPT_MAX]
        return reply

    def _complete(self, shard: ShardId, *, reading: bool = False) -> None:
        """Complete or drop the half accepted write of a row before anything else."""
        statement = self._take_accepted(shard)
        if statement is not None and self.chance.random() < COMPLETED:
            self._decide(statement, may_rest=False)
            self.struck["complete_by_read"] += reading

    def _take_accepted(self, shard: ShardId) -> RegisterWrite | WriteTogether | None:
        """Remove and return the half accepted write of a row, which may move other rows as well."""
        statement = self._accepted.get(shard)
        for each in single_writes(statement) if statement is not None else ():
            self._accepted.pop(each.shard, None)
        return statement

    def _plain(self, statement: PlainWrite, stamp_us: int) -> StatementReply:
        if self._draws.strikes("reorder_plain", self.faults.reorder_plain):
            self._keep(statement, stamp_us)
            return StatementFailed("timeout, on its way")
        if isinstance(statement, (DeleteSegment, DeleteBucket)):
            for cell in list(self.cells.at(partition(statement)).values()):
                if self._draws.strikes("plain_after_delete", self.faults.plain_after_delete):
                    self._keep(InsertRow(statement.shard, cell.row), cell.stamp_us)
        self.cells.write(statement, stamp_us)
        return WriteStored()

    def _read(self, statement: ReadStatement, level: Level) -> StatementReply:
        if isinstance(statement, ReadCluster | ReadName):
            return self.registers.run([statement])[0]
        if not isinstance(statement, ReadRegister):
            return RowsFound(tuple(self.reads.rows(self._shown(statement), statement)))
        old = self._old(statement.shard, level)
        if old and self._draws.strikes("stale_read", self.faults.stale_read):
            return RowsFound((self.chance.choice(old),))
        self._complete(statement.shard, reading=True)
        return self.registers.run([statement])[0]

    def _shown(self, statement: PlainRead) -> Cells:
        """Return the cells as this read finds them."""
        share = self.faults.flicker
        late = [each for each in self._late if isinstance(each.statement, PlainWrite)]
        some = [each for each in late if self._draws.strikes("flicker", share)]
        return with_some(self.cells, some, where=partition(statement)) if some else self.cells

    def _old(self, shard: ShardId, level: Level) -> list[RegisterRow]:
        """Return the rows that a read below SERIAL may return instead of the newest."""
        now = self.registers.registers.get(shard)
        if level is Level.ONE:
            return self._before.get(shard, [])
        in_flight = level is Level.QUORUM and shard in self._accepted
        return [now] if in_flight and now is not None else []

    # ---- later ----

    def _keep(self, statement: ConditionalWrite | PlainWrite, stamp_us: int) -> None:
        """Keep a late statement: it is applied before the next, after a few more, or by time.

        Calls take no time, so a delay alone would let nothing overtake.
        """
        delay_s = self.chance.random() * self.faults.late_s
        some = self.chance.randint(1, OVERTAKEN_MAX)
        received = self._received + self.chance.choice((0, some, NEVER_DONE))
        self._late.append(Late(self.clock.now() + delay_s, received, statement, stamp_us))

    def _do(self, late: Late) -> None:
        if isinstance(late.statement, ConditionalWrite):
            self._decide(late.statement, may_rest=True)
        else:
            self.cells.write(late.statement, late.stamp_us)

    def _stamp_us(self, sender: MemberRows) -> int:
        """Return the time of a write by its daemon's clock.

        Virtual time does not move during many statements, so they are counted too: else a delete
        would miss what was written just before.
        """
        now_s = self.clock.now() + sender.off * self.faults.skew_s
        return int(now_s * 1_000_000) + self._received


class MemberRows:
    """The rows port of one daemon. Its clock is off by its own share of `skew_s`."""

    def __init__(self, store: SimulatedStore, member: str, *, level: Level) -> None:
        self.store = store
        self.member = member
        self.level = level
        self.off = store.chance.uniform(-1.0, 1.0)

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        return self.store.run(self, statements)

    def close(self) -> None:
        """Close nothing: what was sent is still on its way."""
