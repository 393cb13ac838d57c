"""The fencing protocol as a model: few owners, one store, every order of what may happen.

**The owners are the real code.** `core/journal/fencing.py`, `core/journal/register.py` and
`core/journal/chain.py` decide what is said and what an answer means, `simulation/memory_rows.py`
what it does to the store; the model has only the order, the fates and the promises. A second
description of the protocol would be proven right while the code goes wrong. It costs little:
owners, stores, statements and stories are interned and each step of one of them is worked out once,
so a move of the model is a few look-ups in tables; a state is a tuple of small numbers.

What may happen: an owner at rest begins a talk (claim, frame, checkpoint, cut, sweep, leave); what
it asks runs and is answered, at any later time; or a write of it is *lost*: it gets an error, and
the write stays under way; or *repeated*: answered, and a copy stays; or a floor is *refused* for
the sake of another shard's that it is written together with, and a copy stays. What is under way
may land at any time, any number of times, in any order, or never. In doubt an owner goes on (the
identical write) or gives up and claims again. A *crash* forgets all but what is under way. Rounds
of several shards have a model of their own, `rounds.py`.

What is left out, and why that loses nothing: answers under way (a late answer is an owner that is
slow to go on); reads that fail (they change nothing, so they are reads that come later); a pause
between rows of one ask (only a sweep reads there, and only to delete). The rules of the protocol
are in the real code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from peloton.runtime.core.journal import segments
from peloton.runtime.core.journal.statements import (
    ConditionalWrite,
    FrameRow,
    MoveFloor,
    OtherRefused,
    PartRow,
    PlainWrite,
    RowsFound,
    Statement,
    StatementFailed,
)
from peloton.runtime.ports import Damaged, EndedRow, JournalBroken, Unclear
from tests.model import owners
from tests.model.owners import Ended, Heard, Node, Rest, may, resume
from tests.model.promises import Story, Wrong, landed, told, whole
from tests.model.search import Move, State
from tests.model.tables import Store, bootstrapped, run

WRITES = ConditionalWrite | PlainWrite
READER = Rest(process=255, named=1000)
"""Who a recovery is tried with: no owner has this number, none names that many writes."""
LIFE = 16
"""What a crash adds to the name of a process."""

OPS_PER_TALK_MAX = 2
REFUSED = "refused for another"


class Bounds(NamedTuple):
    """How much may happen. What is used up is part of a state."""

    owners: int = 2
    epochs: int = 2
    frames: int = 2
    checkpoints: int = 0
    cuts: int = 0
    sweeps: int = 0
    leaves: int = 0
    troubles: int = 1
    """Writes that are lost or repeated."""
    crashes: int = 0
    refusals: int = 0
    """Floors that another shard's register refuses."""
    segment_writes: int = 1
    """Conditional writes that an owner names while it writes to one segment."""


BUDGETED = ("frame", "checkpoint", "cut", "sweep", "leave")
TROUBLE, CRASH, REFUSAL = range(len(BUDGETED), len(BUDGETED) + 3)


class Memo(dict[Any, Any]):
    """Results of a function by its argument; one that raised is worked out again."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def __missing__(self, key: Any) -> Any:
        result = self[key] = self.function(key)
        return result


class Names:
    """Values by number and numbers by value; numbers are given in the order of discovery."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.numbers: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        return number


class Protocol:
    """The model. A state is (store, owners, under way, story, what is left), all in numbers."""

    wrong: type[Exception] = Wrong

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.stores, self.nodes = Names(), Names()
        self.statements, self.stories = Names(), Names()
        self._said = Memo(self._say)
        self._ran = Memo(self._run)
        self._asks = Memo(self._ask)
        self._heard = Memo(self._hear)
        self._landed = Memo(self._land)
        self._checked = Memo(self._check)
        self._recovered = Memo(self._recover)
        self.idle = tuple(self.nodes(Node(Rest(slot + 1))) for slot in range(bounds.owners))

    def start(self) -> State:
        b = self.bounds
        talks = (b.frames, b.checkpoints, b.cuts, b.sweeps, b.leaves)
        left = (*talks, b.troubles, b.crashes, b.refusals)
        return (self.stores(bootstrapped()), self.idle, (), self.stories(Story()), left)

    # ---- what may happen ---------------------------------------------------------------------

    def moves(self, state: State) -> Iterator[Move]:
        """(slot, want, fate, which statement); or (-1, statement) for one that lands late."""
        store, owners, flying, _, left = state
        for slot, node in enumerate(owners):
            # Owners differ in name only, so the first to move may as well be the first.
            if slot and owners[slot - 1] == self.idle[slot - 1]:
                break
            for want in self._wants(node, store, left):
                _, ask = self._asks[node, want]
                if not ask and want in BUDGETED:
                    continue  # nothing to do, for instance nothing to cut
                yield (slot, want, "", 0)
                if left[CRASH]:
                    yield (slot, want, "crash", 0)
                if left[TROUBLE]:
                    for at, statement in enumerate(ask):
                        if isinstance(self.statements.values[statement], WRITES):
                            yield (slot, want, "lost", at)
                            yield (slot, want, "repeated", at)
                if left[REFUSAL]:
                    for at, statement in enumerate(ask):
                        if isinstance(self.statements.values[statement], MoveFloor):
                            yield (slot, want, REFUSED, at)
        for statement in flying:
            yield (-1, statement)

    def _wants(self, node: int, store: int, left: tuple[int, ...]) -> Iterator[str]:
        """ "" is to go on with what it does; else a talk to begin."""
        said = self._said[node]
        if not isinstance(said, Ended):
            yield ""
        else:
            for want in may(said.rest):
                if left[BUDGETED.index(want)]:
                    yield want
        epoch = self.stores.values[store].register.epoch
        if isinstance(said, Ended | Unclear) and epoch < self.bounds.epochs:
            yield "claim"

    def after(self, state: State, move: Move) -> State | None:
        if move[0] < 0:
            return self._late(state, move[1])
        slot, want, fate, which = move
        store, owners, flying, story, left = state
        node, ask = self._asks[owners[slot], want]
        if want in BUDGETED:
            left = _spent(left, BUDGETED.index(want))
        if fate == "crash":
            flying = self._flying(store, flying, ask)
            return (store, _with(owners, slot, self._reborn(node)), flying, story,
                    _spent(left, CRASH))  # fmt: skip
        if fate:
            left = _spent(left, REFUSAL if fate == REFUSED else TROUBLE)
            flying = self._flying(store, flying, ask[which : which + 1])
        replies: list[Any] = []
        for at, statement in enumerate(ask):
            if fate == "lost" and at == which:
                replies.append(StatementFailed("lost"))
                continue
            if fate == REFUSED and at == which:
                replies.append(OtherRefused())
                continue
            story = self._landed[story, store, statement]
            store, reply = self._ran[store, statement]
            self._checked[story, store]
            replies.append(reply)
        node, story = self._heard[node, tuple(replies), story]
        if store != state[0]:
            flying = self._flying(store, flying, ())
        return (store, _with(owners, slot, node), flying, story, left)

    def _late(self, state: State, statement: int) -> State | None:
        store, owners, flying, story, left = state
        after, _ = self._ran[store, statement]
        if after == store:
            return None
        story = self._landed[story, store, statement]
        self._checked[story, after]
        return (after, owners, self._flying(after, flying, ()), story, left)

    def _flying(self, store: int, flying: State, more: State) -> State:
        """Writes under way, without those whose epoch is over: the store refuses them for ever.

        To plant a store that does not look at the epoch of a *late* write, take this out first.
        """
        epoch = self.stores.values[store].register.epoch
        values = self.statements.values
        return tuple(
            one
            for one in sorted({*flying, *more})
            if isinstance(values[one], WRITES)
            and not (isinstance(values[one], ConditionalWrite) and values[one].epoch < epoch)
        )

    def _reborn(self, node: int) -> int:
        return self.nodes(Node(Rest(self.nodes.values[node].rest.process + LIFE)))

    # ---- steps, each worked out once ---------------------------------------------------------

    def _say(self, node: int) -> Heard:
        try:
            return resume(self.nodes.values[node])
        except (JournalBroken, Damaged) as error:
            raise Wrong(f"{type(error).__name__}: {error}") from None

    def _ask(self, key: tuple[int, str]) -> tuple[int, tuple[int, ...]]:
        """An owner that goes on, or begins a talk: where it is then, and what it asks."""
        number, want = key
        node: Node = self.nodes.values[number]
        said = self._said[number]
        if want:
            rest = said.rest if isinstance(said, Ended) else _given_up(node.rest)
            if want == "claim":
                rest = Rest(rest.process, rest.named)
            number = self.nodes(Node(rest, want))
        elif isinstance(said, Unclear):
            number = self.nodes(node._replace(heard=(*node.heard, None)))
        said = self._said[number]
        assert not isinstance(said, Unclear)
        return number, () if isinstance(said, Ended) else tuple(map(self.statements, said))

    def _hear(self, key: tuple[int, tuple[Any, ...], int]) -> tuple[int, int]:
        """The owner got its replies: where it is, and the story with what it then says."""
        number, replies, story = key
        node = self.nodes.values[number]
        number = self.nodes(node._replace(heard=(*node.heard, replies)))
        while isinstance(said := self._said[number], Ended):
            process = said.rest.process
            story = self.stories(told(self.stories.values[story], process, said.news))
            if said.rest.owned is None or said.rest.history is not None:
                return self.nodes(Node(said.rest)), story
            number = self.nodes(Node(said.rest, "load"))  # who has claimed reads at once
        return number, story

    def _run(self, key: tuple[int, int]) -> tuple[int, Any]:
        after, reply = run(self.stores.values[key[0]], self.statements.values[key[1]])
        return self.stores(after), reply

    def _land(self, key: tuple[int, int, int]) -> int:
        story, store, statement = key
        _, reply = self._ran[store, statement]
        said: Statement = self.statements.values[statement]
        before: Store = self.stores.values[store]
        return self.stories(landed(self.stories.values[story], before, said, reply))

    def _check(self, key: tuple[int, int]) -> None:
        story, store = key
        whole(self.stories.values[story], self.stores.values[store], self._recovered[store])

    def _recover(self, number: int) -> tuple[bytes, ...]:
        """What an owner would read that claimed now, alone and without trouble."""
        store, node = self.stores.values[number], Node(READER, "claim")
        try:
            while True:
                said = resume(node)
                assert not isinstance(said, Unclear), "nothing fails here"
                if not isinstance(said, Ended):
                    replies = []
                    for statement in said:
                        store, reply = run(store, statement)
                        replies.append(reply)
                    node = node._replace(heard=(*node.heard, tuple(replies)))
                elif said.rest.history is not None:
                    return said.rest.history
                elif said.rest.owned is None:
                    raise Wrong("a recovery now is refused")
                else:
                    node = Node(said.rest, "load")
        except (JournalBroken, Damaged) as error:
            raise Wrong(f"a recovery now ends with {type(error).__name__}: {error}") from None

    # ---- for people --------------------------------------------------------------------------

    def explain(self, state: State, move: Move) -> str:
        """The move in words."""
        if move[0] < 0:
            return f"late: {shown(self.statements.values[move[1]])} lands"
        slot, want, fate, which = move
        node, ask = self._asks[state[1][slot], want]
        who = f"owner {self.nodes.values[node].rest.process}"
        words = "; ".join(shown(self.statements.values[one]) for one in ask)
        begins = f" begins {want}:" if want else ":"
        text = f"{who}{begins} {words}"
        if fate == "crash":
            return f"{text} -> it dies, what it wrote stays under way"
        if fate:
            lost = shown(self.statements.values[ask[which]])
            return f"{text} -> {lost} is {fate}, and stays under way"
        store, replies = state[0], []
        for statement in ask:
            store, reply = self._ran[store, statement]
            replies.append(shown(reply))
        return f"{text} -> {'; '.join(replies)}"


def shown(value: Any) -> str:
    """A statement or a reply, short: names of writes as process.count, no chains."""
    if isinstance(value, RowsFound):
        return "found " + (", ".join(map(shown, value.rows)) or "nothing")
    name, words = type(value).__name__, []
    for field in value.__struct_fields__:
        content = getattr(value, field)
        if field in ("op", "expected") and isinstance(content, bytes) and len(content) == 24:
            content = f"{int.from_bytes(content[:16], 'big')}/{int.from_bytes(content[16:], 'big')}"
        if isinstance(value, PartRow) and field == "body" and value.number == 0:
            content = "manifest"
        if isinstance(content, FrameRow | PartRow | EndedRow):
            words.append(shown(content))
        elif field not in ("shard", "chain", "prev_chain", "last_chain", "digest", "owner", "kind"):
            words.append(f"{field}={content if isinstance(content, str) else repr(content)}")
    return f"{name}({' '.join(words)})"


def _with(owners: tuple[int, ...], slot: int, node: int) -> tuple[int, ...]:
    return (*owners[:slot], node, *owners[slot + 1 :])


def _spent(left: tuple[int, ...], which: int) -> tuple[int, ...]:
    return (*left[:which], left[which] - 1, *left[which + 1 :])


def _given_up(rest: Rest) -> Rest:
    """Out, and past every name of a write that the talk may have used."""
    return Rest(rest.process, rest.named + OPS_PER_TALK_MAX)


@contextmanager
def segments_of(writes: int) -> Iterator[None]:
    """Segments of so many writes while one model is searched: with 1 each frame has its own, and
    two checkpoints leave something to cut; with many a process that owns the shard again goes on
    in the segment where it left. What was cut is off the list at once."""
    before = (owners.WRITES_PER_SEGMENT, segments.SWEEP_SEGMENTS)
    owners.WRITES_PER_SEGMENT, segments.SWEEP_SEGMENTS = writes, 0
    try:
        yield
    finally:
        owners.WRITES_PER_SEGMENT, segments.SWEEP_SEGMENTS = before
