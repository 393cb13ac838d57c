"""Rounds of two shards as a model: few processes, one store, every order of what may happen.

**The processes are the real journal**, `adapters/fenced_rows.py` with the protocol under it, over a
tape instead of a store. A journal is a function of what it is asked and told, so a process is
frozen as its calls and the replies so far (a `Node`): to go on is to let a new journal hear all of
it again, until it asks for statements that nobody has answered yet. One with nothing pending is
frozen as the shards it owns, so that its past is forgotten.

What may happen: a process claims a shard (in one step), commits a round of all it owns, settles any
of what is pending, drops or claims what is pending; statements are lost, repeated and late as in
`protocol.py`, and a process may crash. A *stray* round has a shard in it that is not held any more.
Beside the promises of `promises.py`:

1. *A round is whole*: of its frames all are committed, or none, in every state.
2. *An answer is one*: who is told Committed has its frame committed, who is told RoundRefused, or
   Fenced for good, never will have.
3. *It ends*: a call of which no statement failed is never answered Unclear.

The rules of the protocol are in the real code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal.statements import (
    ConditionalWrite,
    CreateRegister,
    InsertRow,
    RegisterRow,
    Statement,
    StatementFailed,
    StatementReply,
    single_writes,
)
from peloton.runtime.ports import (
    Answer,
    Claimed,
    Committed,
    Fenced,
    Frame,
    JournalError,
    RoundRefused,
    ShardId,
    Unclear,
    Work,
)
from peloton.runtime.simulation.memory_rows import MemoryRows
from tests.model.owners import Frozen, Ops, freeze, thaw
from tests.model.promises import Wrong
from tests.model.protocol import LIFE, Memo, Names, shown
from tests.model.search import Move, State
from tests.model.tables import Table, frozen_table, thawed_table

SHARDS = (ShardId("g", 0), ShardId("g", 1))
BOTH = (0, 1)
READER = (255).to_bytes(16, "big")


class Bounds(NamedTuple):
    """How much may happen."""

    processes: int = 2
    epochs: int = 2
    """Of each shard."""
    rounds: int = 1
    troubles: int = 1
    """Writes that are lost or repeated."""
    crashes: int = 0
    strays: int = 0


ROUND, TROUBLE, CRASH, STRAY = range(4)


# ---- processes as values ---------------------------------------------------------------------


class Rest(NamedTuple):
    """A process with nothing pending."""

    process: int
    named: int = 0
    """Conditional writes it has given a name."""
    begun: int = 0
    """Rounds it has begun."""
    owned_shards: tuple[Frozen | None, Frozen | None] = (None, None)


class Call(NamedTuple):
    """A call of the journal, and the shards it is about."""

    name: str
    shards: tuple[int, ...]


class Node(NamedTuple):
    """A process: where it began, what it has called since, and what its journal was answered."""

    rest: Rest
    calls: tuple[Call, ...] = ()
    heard: tuple[tuple[StatementReply, ...], ...] = ()


class Idle(NamedTuple):
    """A process between two calls, and what the last one told it."""

    node: Node
    held: tuple[int, ...]
    pending: tuple[int, ...]
    news: tuple[tuple[bytes, Answer], ...]
    """Body and answer of each frame that was told of."""


class Asks(NamedTuple):
    """A process within a call, waiting for the replies to these."""

    statements: tuple[Statement, ...]


class Silence(BaseException):
    """The tape is at its end."""


class Tape:
    """Rows that answer what is on the tape."""

    def __init__(self, replies: Sequence[tuple[StatementReply, ...]]) -> None:
        self.replies = deque(replies)
        self.failed = False
        """Whether a statement of the call under way has failed."""

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        if not statements:
            return []
        if not self.replies:
            raise Silence(tuple(statements))
        replies = self.replies.popleft()
        self.failed = self.failed or any(isinstance(one, StatementFailed) for one in replies)
        return list(replies)

    def close(self) -> None:
        raise NotImplementedError


def resume(node: Node) -> Idle | Asks:
    """Where the process is after all it has heard."""
    rest, tape = node.rest, Tape(node.heard)
    journal = FencedRows(tape, process=rest.process.to_bytes(16, "big"))
    ops = journal._ops = Ops(rest.process, rest.named)
    journal._owned = {
        shard: thaw(owned) for shard, owned in zip(SHARDS, rest.owned_shards, strict=True) if owned
    }
    begun, bodies, news = rest.begun, {}, ()
    try:
        for call in node.calls:
            tape.failed = False
            if call.name == "commit":
                begun += 1
                head = b"%d.%d/%d" % (rest.process, begun, len(call.shards))
                bodies |= {number: b"%s.%d" % (head, number) for number in call.shards}
            news = _called(journal, call, bodies)
            if not tape.failed and any(isinstance(answer, Unclear) for _, answer in news):
                raise Wrong("a call of which nothing failed is answered Unclear")
    except Silence as silence:
        return Asks(silence.args[0])
    held = tuple(at for at, shard in enumerate(SHARDS) if shard in journal._owned)
    pending = tuple(at for at, shard in enumerate(SHARDS) if shard in journal._pending)
    if not pending:
        first, second = (
            freeze(journal._owned[shard]) if shard in journal._owned else None for shard in SHARDS
        )
        node = Node(Rest(rest.process, ops.count, begun, (first, second)))
    return Idle(node, held, pending, news)


def _called(
    journal: FencedRows, call: Call, bodies: dict[int, bytes]
) -> tuple[tuple[bytes, Answer], ...]:
    shards = [SHARDS[number] for number in call.shards]
    if call.name == "claim":
        journal.claim(shards[0], "x")
        return ()
    if call.name == "drop":
        journal.drop(shards[0])
        return ()
    if call.name == "settle":
        answers = journal.settle(shards)
    else:
        answers = journal.commit([_work(journal, number, bodies) for number in call.shards])
    return tuple((bodies[number], one) for number, one in zip(call.shards, answers, strict=True))


def _work(journal: FencedRows, number: int, bodies: dict[int, bytes]) -> Work:
    owned = journal._owned.get(SHARDS[number])
    if owned is None:
        return Work(SHARDS[number], 0, Frame(1, bodies[number]))
    return Work(SHARDS[number], owned.epoch, Frame(owned.last_position + 1, bodies[number]))


# ---- the store and the story as values -------------------------------------------------------


class Store(NamedTuple):
    """Everything that is durable."""

    registers: tuple[RegisterRow, ...]
    journal: Table = ()


class Story(NamedTuple):
    """Committed frames per shard, and frames that were told to have failed for good."""

    committed: tuple[tuple[bytes, ...], ...] = ((), ())
    refused: tuple[bytes, ...] = ()


def rows_of(store: Store) -> MemoryRows:
    rows = MemoryRows()
    rows.registers = dict(zip(SHARDS, store.registers, strict=True))
    rows.journal = thawed_table(store.journal)
    return rows


def run(store: Store, statement: Statement) -> tuple[Store, StatementReply]:
    """The store after the statement, and what it answers."""
    rows = rows_of(store)
    (reply,) = rows.run([statement])
    registers = tuple(rows.registers[shard] for shard in SHARDS)
    return Store(registers, frozen_table(rows.journal)), reply


def landed(story: Story, store: Store, after: Store) -> Story:
    """The story once `store` has become `after`: frames that the registers took."""
    committed = list(story.committed)
    for at, (was, now) in enumerate(zip(store.registers, after.registers, strict=True)):
        if now.last_position == was.last_position:
            continue
        if now.last_position != len(committed[at]) + 1:
            raise Wrong(f"frame {now.last_position} follows frame {len(committed[at])}")
        committed[at] = (*committed[at], _body(after, SHARDS[at], now))
    story = story._replace(committed=tuple(committed))
    bodies = [body for some in story.committed for body in some]
    if len(bodies) != len(set(bodies)):
        raise Wrong("one frame is committed at two positions")
    if set(bodies) & set(story.refused):
        raise Wrong("a frame was reported as failed, and is committed later")
    _whole_rounds(bodies)
    return story


def _body(store: Store, shard: ShardId, register: RegisterRow) -> bytes:
    for (owner, _), rows in store.journal:
        for _, row in rows:
            if owner == shard and row.chain == register.last_chain:
                return bytes(row.body)
    raise Wrong(f"frame {register.last_position} is committed before its rows are there")


def _whole_rounds(bodies: list[bytes]) -> None:
    for body in bodies:
        head = body[: body.rindex(b".")]
        size = int(head[head.index(b"/") + 1 :])
        if sum(one[: one.rindex(b".")] == head for one in bodies) != size:
            raise Wrong(f"of the {size} frames of round {head!r} only a part is committed")


def told(story: Story, news: tuple[tuple[bytes, Answer], ...]) -> Story:
    """What a process was told of its frames."""
    bodies = [body for some in story.committed for body in some]
    for body, answer in news:
        if isinstance(answer, Committed) and body not in bodies:
            raise Wrong("a frame is acknowledged, and is not committed")
        if isinstance(answer, RoundRefused) or (isinstance(answer, Fenced) and answer.definite):
            if body in bodies:
                raise Wrong("a frame is reported as failed, and was committed")
            story = story._replace(refused=tuple(sorted({*story.refused, body})))
    return story


# ---- the model -------------------------------------------------------------------------------


class Rounds:
    """The model. A state is (store, processes, under way, story, what is left), all in numbers."""

    wrong: type[Exception] = Wrong

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.stores, self.nodes = Names(), Names()
        self.statements, self.stories = Names(), Names()
        self._said = Memo(self._say)
        self._ran = Memo(self._run)
        self._landed = Memo(self._land)
        self._checked = Memo(self._check)
        self.idle = tuple(self.nodes(Node(Rest(slot + 1))) for slot in range(bounds.processes))

    def start(self) -> State:
        rows, b = MemoryRows(), self.bounds
        rows.run([CreateRegister(shard, b"boot") for shard in SHARDS])
        store = Store(tuple(rows.registers[shard] for shard in SHARDS))
        left = (b.rounds, b.troubles, b.crashes, b.strays)
        return (self.stores(store), self.idle, (), self.stories(Story()), left)

    def moves(self, state: State) -> Iterator[Move]:
        """(slot, call or None to go on, fate, which statement); or (-1, statement) that is late."""
        store, processes, flying, _, left = state
        for slot, number in enumerate(processes):
            # Processes differ in name only, so the first to move may as well be the first.
            if slot and processes[slot - 1] == self.idle[slot - 1]:
                break
            said = self._said[number]
            if isinstance(said, Idle):
                for call in self._calls(said, self.stores.values[store], left):
                    yield (slot, call, "", 0)
                continue
            yield (slot, None, "", 0)
            if left[CRASH]:
                yield (slot, None, "crash", 0)
            for at, statement in enumerate(said.statements):
                if left[TROUBLE]:
                    yield (slot, None, "lost", at)
                    if isinstance(statement, ConditionalWrite):  # a row again changes nothing
                        yield (slot, None, "repeated", at)
        for statement in flying:
            yield (-1, statement)

    def _calls(self, idle: Idle, store: Store, left: tuple[int, ...]) -> Iterator[Call]:
        for at in BOTH:
            # Shards differ in name only, too.
            first = at == 0 or store.registers[0].epoch > 0
            wanted = at not in idle.held or at in idle.pending
            if first and wanted and store.registers[at].epoch < self.bounds.epochs:
                yield Call("claim", (at,))
            if at in idle.pending:
                yield Call("drop", (at,))
        free = tuple(at for at in idle.held if at not in idle.pending)
        if free and left[ROUND]:
            yield Call("commit", free)
        if len(free) == 1 and not idle.pending and left[ROUND] and left[STRAY]:
            yield Call("commit", BOTH)
        for size in (1, 2):
            for some in combinations(idle.pending, size):
                yield Call("settle", some)

    def after(self, state: State, move: Move) -> State | None:
        if move[0] < 0:
            return self._late(state, move[1])
        slot, call, fate, which = move
        store, processes, flying, story, left = state
        node: Node = self.nodes.values[processes[slot]]
        if call is not None:
            if call.name == "commit":
                left = _spent(left, ROUND)
                stray = len(call.shards) > len(self._said[processes[slot]].held)
                left = _spent(left, STRAY) if stray else left
            node = node._replace(calls=(*node.calls, call))
            if call.name == "claim":
                store, node = self._claimed(store, node)
            return self._heard((store, processes, flying, story, left), slot, node)
        asked = [self.statements(one) for one in self._said[processes[slot]].statements]
        if fate == "crash":
            number = self.nodes(Node(Rest(node.rest.process + LIFE)))
            flying = self._flying(store, (*flying, *asked))
            return (store, _with(processes, slot, number), flying, story, _spent(left, CRASH))
        if fate:
            left, flying = _spent(left, TROUBLE), (*flying, asked[which])
        replies: list[StatementReply] = []
        for at, statement in enumerate(asked):
            if fate == "lost" and at == which:
                replies.append(StatementFailed("lost"))
                continue
            story = self._landed[story, store, statement]
            store, reply = self._ran[store, statement]
            self._checked[story, store]
            replies.append(reply)
        node = node._replace(heard=(*node.heard, tuple(replies)))
        return self._heard((store, processes, flying, story, left), slot, node)

    def _claimed(self, store: int, node: Node) -> tuple[int, Node]:
        """A claim is one step here: its own orders are searched by `protocol.py`."""
        while isinstance(said := self._said[self.nodes(node)], Asks):
            replies: list[StatementReply] = []
            for statement in said.statements:
                store, reply = self._ran[store, self.statements(statement)]
                replies.append(reply)
            node = node._replace(heard=(*node.heard, tuple(replies)))
        return store, node

    def _heard(self, state: State, slot: int, node: Node) -> State:
        """The state once this process is where `node` says."""
        store, processes, flying, story, left = state
        number = self.nodes(node)
        said = self._said[number]
        if isinstance(said, Idle):
            story = self.stories(told(self.stories.values[story], said.news))
            number = self.nodes(said.node)
        return (store, _with(processes, slot, number), self._flying(store, flying), story, left)

    def _late(self, state: State, statement: int) -> State | None:
        store, processes, flying, story, left = state
        after, _ = self._ran[store, statement]
        if after == store:
            return None
        story = self._landed[story, store, statement]
        self._checked[story, after]
        return (after, processes, self._flying(after, flying), story, left)

    def _flying(self, store: int, flying: Sequence[int]) -> State:
        """Writes under way that may still change something: nothing is deleted here, so a row
        that is there stays, and an epoch that is over is over for good."""
        found: Store = self.stores.values[store]
        return tuple(
            one for one in sorted({*flying}) if _may_land(found, self.statements.values[one])
        )

    # ---- steps, each worked out once ----

    def _say(self, number: int) -> Idle | Asks:
        try:
            return resume(self.nodes.values[number])
        except JournalError as error:
            raise Wrong(f"{type(error).__name__}: {error}") from None

    def _run(self, key: tuple[int, int]) -> tuple[int, StatementReply]:
        after, reply = run(self.stores.values[key[0]], self.statements.values[key[1]])
        return self.stores(after), reply

    def _land(self, key: tuple[int, int, int]) -> int:
        story, store, statement = key
        after, _ = self._ran[store, statement]
        before: Store = self.stores.values[store]
        return self.stories(landed(self.stories.values[story], before, self.stores.values[after]))

    def _check(self, key: tuple[int, int]) -> None:
        """What an owner would read that claimed now is what was committed."""
        story, store = key
        heir = FencedRows(rows_of(self.stores.values[store]), process=READER)
        for at, shard in enumerate(SHARDS):
            try:
                if not isinstance(heir.claim(shard, "x"), Claimed):
                    raise Wrong("a recovery now is refused")
                found = tuple(frame.body for frame in heir.read_tail(shard))
            except JournalError as error:
                raise Wrong(f"a recovery now ends with {type(error).__name__}: {error}") from None
            if found != self.stories.values[story].committed[at]:
                raise Wrong(f"a recovery now reads {found}")

    def explain(self, state: State, move: Move) -> str:
        """The move in words."""
        if move[0] < 0:
            return f"late: {worded(self.statements.values[move[1]])} lands"
        slot, call, fate, which = move
        number = state[1][slot]
        who = f"process {self.nodes.values[number].rest.process}"
        if call is not None:
            return f"{who}: {call.name} {', '.join(map(str, call.shards))}"
        asked = self._said[number].statements
        text = f"{who}: {'; '.join(map(worded, asked))}"
        if fate == "crash":
            return f"{text} -> it dies, what it wrote stays under way"
        if fate:
            return f"{text} -> {worded(asked[which])} is {fate}, and stays under way"
        return text


def _may_land(store: Store, statement: Statement) -> bool:
    registers = dict(zip(SHARDS, store.registers, strict=True))
    if isinstance(statement, InsertRow):
        return run(store, statement)[0] != store
    return isinstance(statement, ConditionalWrite) and all(
        one.epoch >= registers[one.shard].epoch for one in single_writes(statement)
    )


def _with(processes: tuple[int, ...], slot: int, node: int) -> tuple[int, ...]:
    return (*processes[:slot], node, *processes[slot + 1 :])


def _spent(left: tuple[int, ...], which: int) -> tuple[int, ...]:
    return (*left[:which], left[which] - 1, *left[which + 1 :])


def worded(statement: Statement) -> str:
    """Each write with its shard."""
    writes = single_writes(statement)
    return " and ".join(f"{shown(one)} of {one.shard.number}" for one in writes)
