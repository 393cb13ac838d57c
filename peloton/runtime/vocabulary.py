"""The words of the runtime: all that a kind of actor needs to import.

A kind is a record of pure functions over values: `decide` (a message came), `pursue` (is there a
next step towards the goal?), `evolve` (a fact happened). This module names the values they share.
It must never import anything above it, read a clock, draw a number or know any kind.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NewType

import msgspec

Key = NewType("Key", str)
"""Name of an entity wherever it lives: `<kind>/<rest>`, such as `job/<uuid>`."""


def key(kind: str, *parts: object) -> Key:
    """The key of the entity of `kind` that `parts` name."""
    return Key("/".join((kind, *map(str, parts))))


@functools.lru_cache(maxsize=65536)
def kind_of(name: Key) -> str:
    """The kind a key belongs to. Asked several times a turn, hence remembered."""
    return name.partition("/")[0]


class Bits:
    """A set of members of a crowd, held as the bits of one integer; immutable, iterates ascending.

    It travels and is journaled as little-endian bytes, because MessagePack knows no integer of
    a thousand bits.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: int = 0) -> None:
        self.raw = raw

    @classmethod
    def span(cls, start: int, stop: int) -> Bits:
        """The members start, start + 1 … stop - 1."""
        return cls((1 << stop) - (1 << start)) if stop > start else cls()

    @classmethod
    def of(cls, *members: int) -> Bits:
        """The members named."""
        raw = 0
        for member in members:
            raw |= 1 << member
        return cls(raw)

    @classmethod
    def unpack(cls, data: bytes) -> Bits:
        """The inverse of `pack`."""
        return cls(int.from_bytes(data, "little"))

    def pack(self) -> bytes:
        """Little-endian bytes without trailing zeros."""
        return self.raw.to_bytes((self.raw.bit_length() + 7) // 8, "little")

    def lowest(self, count: int) -> Bits:
        """The `count` lowest members, or all when there are fewer."""
        if count >= self.raw.bit_count():
            return self
        return Bits.of(*members_of(self.raw)[:count])

    def __or__(self, other: Bits) -> Bits:
        return Bits(self.raw | other.raw)

    def __and__(self, other: Bits) -> Bits:
        return Bits(self.raw & other.raw)

    def __sub__(self, other: Bits) -> Bits:
        return Bits(self.raw & ~other.raw)

    def __contains__(self, member: int) -> bool:
        return bool(self.raw >> member & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(members_of(self.raw))

    def __len__(self) -> int:
        return self.raw.bit_count()

    def __bool__(self) -> bool:
        return self.raw != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bits) and self.raw == other.raw

    def __hash__(self) -> int:
        return self.raw % 2305843009213693951

    def __repr__(self) -> str:
        return f"Bits({list(members_of(self.raw))})"


def members_of(raw: int) -> list[int]:
    """Positions of the bits set in `raw`, ascending; the fastest way Python has (30 ns a bit)."""
    if raw & raw - 1 == 0:
        return [raw.bit_length() - 1] if raw else []
    return [at for at, bit in enumerate(bin(raw)[:1:-1]) if bit == "1"]


class Value(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record that never changes. Fields are only ever added at the end, with defaults."""


class Delivery(enum.Enum):
    """What bookkeeping a message between shards has."""

    OWED = "owed"  # must arrive: said again until the sender's state changes
    LATEST = "latest"  # absolute and versioned: only the newest matters, said again until seen
    DROPPABLE = "droppable"  # a wish, a hint or an answer: whoever wants it asks again


class Message(Value, frozen=True, gc=False, array_like=True):
    """Something said to an actor. Numbered per kind; the number is its name in bytes."""

    delivery: ClassVar[Delivery] = Delivery.DROPPABLE

    def replaced(self) -> Message | None:
        """An older word that this one makes pointless, where both would leave together."""
        return None


class Fact(Value, frozen=True, gc=False, array_like=True):
    """Something an actor wrote down; its class is named in the past tense."""


class Query(Value, frozen=True, gc=False, array_like=True):
    """A question about an entity; its answer never changes anything."""


class Due(Message, frozen=True, gc=False, array_like=True):
    """The deadline of this name has come. The runtime says it, only while it is still theirs."""

    name: str


class Pursue(Message, frozen=True, gc=False, array_like=True):
    """Nothing was said, but what the actor follows has changed: look at the goal again.

    `step` is what that look came to, where the runtime has looked already.
    """

    step: Any = None


class Column(Value, frozen=True, gc=False, array_like=True):
    """A target named by a column of the crowd: "my host". Each member's own value is meant."""

    name: str


class Target(enum.Enum):
    """Targets that a behaviour can name without knowing any key."""

    SENDER = "sender"  # whoever sent the message that is being decided
    PARENT = "parent"  # the parent of the crowd
    SELF = "self"


SENDER, PARENT, SELF = Target.SENDER, Target.PARENT, Target.SELF


class Send(Value, frozen=True, gc=False, array_like=True):
    """One message that leaves once the frame is safe.

    `members` narrows a message to members of the crowd `to`; `values` gives one value for each of
    them, ascending, for a fact that keeps it in a column.
    """

    to: Any  # Key | Column | Target
    message: Message
    members: Bits | None = None
    values: tuple[Any, ...] = ()


class Decision(Value, frozen=True, gc=False, array_like=True):
    """What a behaviour makes of a message: facts, sends, an answer to the asker, and why."""

    facts: tuple[Fact, ...] = ()
    sends: tuple[Send, ...] = ()
    reply: Any = None
    because: str = ""
    notes: Any = None  # soft memory from now on: never journaled, lost with the daemon


class At(msgspec.Struct, frozen=True, gc=False):
    """Where and when a turn is taken: all that is not the actor's own state."""

    now: float  # seconds since the epoch, never falling within a shard
    key: Key  # the cell's own key; of a crowd, the crowd's
    sender: Key | None = None
    members: Bits | None = None  # members of the sender, where the sender is a crowd
    values: tuple[Any, ...] = ()
    index: Any = None  # what the actor, or its parent, derives from children
    who: str = ""
    notes: Any = None  # what the last decision with notes left behind, or None
    epoch: int = 0  # of the shard; orders to the outside carry it, and older ones are refused
    position: int = 0  # of the frame being made; of a report, a number that only grows
    level: int = 0  # feature level: what all members of the fleet are known to understand


class Rest(enum.Enum):
    """Why there is no next step."""

    SETTLED = "settled"  # the goal is reached
    WAITING = "waiting"  # somebody else's word is awaited


SETTLED, WAITING = Rest.SETTLED, Rest.WAITING


class Goal(Message, frozen=True, gc=False, array_like=True):
    """An absolute goal from a parent: of several that wait, only the newest version counts."""

    version: int


class Latest(Message, frozen=True, gc=False, array_like=True):
    """An absolute word of which only the newest version matters; said until it was seen."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    version: int


class Seen(Message, frozen=True, gc=False, array_like=True):
    """The runtime's answer to a `Latest`: this version stands in a frame that is safe."""

    subject: str
    version: int


class Refused(Value, frozen=True, gc=False, array_like=True):
    """An answer: the sender is wrong. `field` is the path of what is wrong, `text` says how.

    `again`: the very same request may be right later, so it is not remembered by its key.
    """

    code: str
    text: str
    field: str = ""
    again: bool = False


class Unavailable(Value, frozen=True, gc=False, array_like=True):
    """An answer: try again later."""

    text: str


class ShardDamaged(Unavailable, frozen=True, gc=False, array_like=True):
    """An answer: what is journaled cannot be read. A person has to act; do not try again.

    Nothing was done, as with its base class, so whoever only needs to know that may look no closer.
    """


class Absent(Value, frozen=True, gc=False, array_like=True):
    """An answer to a query: there is no such entity."""

    key: Key


class DeadLettered(Value, frozen=True, gc=False, array_like=True):
    """An answer: the message failed again and again and is kept for a person to look at."""

    text: str


Decide = Callable[[Any, Any, At], Decision]
Evolve = Callable[[Any, Any], Any]
Pursuing = Callable[[Any, At], "Decision | Rest"]
Upcast = Callable[[Any], Any]
"""From the decoded but untyped value of one schema to that of the next."""


def no_deadline(state: Any) -> tuple[str, float] | None:
    """The deadline of kinds that wait for nothing by the clock."""
    return None


def owes_nothing(state: Any) -> tuple[Send, ...]:
    """What kinds owe that only answer."""
    return ()


def never_ends(state: Any, index: Any) -> bool:
    """For kinds whose entities stay in memory for good."""
    return False


def no_parent(name: Key, state: Any) -> Key | None:
    """The parent of kinds that nobody follows."""
    return None


class CrowdKind(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind adds when its members live together as a crowd.

    `columns` names what differs from member to member, each with its type. `write` says what a
    fact puts into them: fact class → function of (fact, now) → {column: value}; `per_member`
    names the column that takes the values a message brought, one for each member.
    `resolve` completes a message from the parent's state: message class → function of
    (parent's state, message, the member's `spec`) → message. `archive` is for facts that put
    away what a member's own columns hold: function of (state before, read a column) →
    {column: value}, called member by member. `upcasters` names the columns whose values change
    with the kind's schema: column → {older schema: step of one value to the next schema}.
    """

    columns: Mapping[str, Any]
    write: Mapping[type, Callable[[Any, float], Mapping[str, Any]]]
    parent: Callable[[Key], Key]
    per_member: Mapping[type, str] = {}
    resolve: Mapping[type, Callable[[Any, Any, Any], Message]] = {}
    archive: Mapping[type, Callable[[Any, Callable[[str], Any]], Mapping[str, Any]]] = {}
    upcasters: Mapping[str, Mapping[int, Upcast]] = {}


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of actor, as registered with the runtime. Every field is pure.

    `absent` is the table for keys that are not in memory: message class → decision on nothing.
    `lookup` names the messages for which the final states are searched before `absent` is asked.
    `schema` is that of the state; `schemas` has those of facts, messages and answers whose form
    changed since the first; `upcasters` leads from older forms: class → {older schema: step}.
    `since` has the facts and answers that earlier versions do not know, in this form: class →
    the feature level from which they may be written. Below it a decision writes what they know.
    """

    name: str
    group: str
    state: type
    decide: Mapping[type, Decide]
    absent: Mapping[type, Callable[[Any, At], Decision]]
    pursue: Pursuing
    evolve: Mapping[type, Evolve]
    messages: Mapping[int, type]
    facts: Mapping[int, type]
    answers: Mapping[int, type] = {}
    partition: Callable[[Key], str | int]
    deadline: Callable[[Any], tuple[str, float] | None] = no_deadline
    owed: Callable[[Any], tuple[Send, ...]] = owes_nothing
    ended: Callable[[Any, Any], bool] = never_ends  # of (state, index)
    parent: Callable[[Key, Any], Key | None] = no_parent
    index: Callable[[], Any] | None = None
    report: Callable[[Any, At], tuple[Send, ...]] | None = None  # said when children changed
    report_interval_s: float = 0.0
    inspect: Mapping[type, Callable[..., Any]] = {}
    recall_s: Callable[[Any], float | None] = lambda notes: None  # when notes want a `Pursue`
    view: Callable[[Key, Any], Any] | None = None
    follows: Callable[[Key], Key] | None = None  # the crowd that an entity is parent of
    lookup: frozenset[type] = frozenset()
    fresh: Callable[[Any], bool] = lambda message: False  # certainly new: not looked up after all
    keep: int = 0  # ended entities that stay in memory before the oldest is written out
    unfinished: Callable[[Any], bool] = lambda state: False  # dropped by recovery
    crowd: CrowdKind | None = None
    schema: int = 1
    schemas: Mapping[type, int] = {}
    upcasters: Mapping[type, Mapping[int, Upcast]] = {}
    since: Mapping[type, int] = {}
    queries: Mapping[int, type] = {}  # numbered beside the messages, from 501 up
