"""The vocabulary of the runtime: all that a kind of actor needs to import.

A kind is a record of pure functions over values, of which `decide` is called when a message has
arrived, `pursue` when there may be a next step towards the goal, and `evolve` for each fact. A kind
must not read a clock or draw a random number: recovery and replays would find other states.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from typing import Any, ClassVar, NewType

import msgspec

Key = NewType("Key", str)
"""Name and address of an entity: `<kind>/<rest>`, such as `job/<uuid>`."""
KEYS_KEPT_MAX = 16_384  # of each cache by key: what has left memory is pushed out by what comes


def key(kind: str, *parts: object) -> Key:
    """Return the key of the entity of `kind` that `parts` name."""
    return Key("/".join((kind, *map(str, parts))))


@functools.lru_cache(maxsize=KEYS_KEPT_MAX)
def kind_of(name: Key) -> str:
    """Return the kind of a key. Cached, as it is called several times per turn."""
    return name.partition("/")[0]


def counted(count: int, one: str, *, many: str) -> str:
    """Return a count with its noun, for reasons that people read."""
    return f"{count} {one if count == 1 else many}"


class Bits:
    """A set of members of a crowd, held as the bits of one integer; immutable, iterates ascending.

    It is sent and journaled as little-endian bytes: MessagePack has no integer of so many bits.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: int = 0) -> None:
        self.raw = raw

    @classmethod
    def span(cls, start: int, stop: int) -> Bits:
        """Return the members start, start + 1 … stop - 1."""
        return cls((1 << stop) - (1 << start)) if stop > start else cls()

    @classmethod
    def of(cls, *members: int) -> Bits:
        """Return the set of these members."""
        return cls(sum(1 << member for member in dict.fromkeys(members)))

    @classmethod
    def unpack(cls, data: bytes) -> Bits:
        """The inverse of `pack`."""
        return cls(int.from_bytes(data, "little"))

    def pack(self) -> bytes:
        """Return little-endian bytes without trailing zeros."""
        return self.raw.to_bytes((self.raw.bit_length() + 7) // 8, "little")

    def lowest(self, count: int) -> Bits:
        """Return the `count` lowest members, or all when there are fewer."""
        if count >= self.raw.bit_count():
            return self
        if count <= 16:  # a set of a thousand is not listed for its first one
            left = self.raw
            for _ in range(count):
                left &= left - 1
            return Bits(self.raw & ~left)
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
    """Return the positions of the bits set in `raw`, ascending."""
    if raw.bit_count() > 16:
        return [at for at, bit in enumerate(bin(raw)[:1:-1]) if bit == "1"]
    few = []
    while raw:
        few.append((raw & -raw).bit_length() - 1)
        raw &= raw - 1
    return few


class Value(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record that never changes. Fields are only ever added at the end, with defaults."""


class Delivery(enum.Enum):
    """How a message between shards is delivered: which sends are repeated, and until when."""

    OWED = "owed"  # must arrive: resent until the sender's state changes
    LATEST = "latest"  # absolute and versioned: only the newest matters, resent until seen
    DROPPABLE = "droppable"  # a request, hint or reply: whoever needs it asks again


class Message(Value, frozen=True, gc=False, array_like=True):
    """A message to an actor. Its class has a number per kind, by which it is encoded."""

    delivery: ClassVar[Delivery] = Delivery.DROPPABLE
    of_sender: ClassVar[bool] = False  # says something of it: of several, equal ones stay apart

    def replaced(self) -> Message | None:
        """Return an older message that this one makes pointless, if both are in one frame."""
        return None


class Fact(Value, frozen=True, gc=False, array_like=True):
    """A journaled fact of an actor; its class is named in the past tense."""


class Query(Value, frozen=True, gc=False, array_like=True):
    """A question about an entity; its answer never changes anything."""


class Due(Message, frozen=True, gc=False, array_like=True):
    """The deadline, or the moment, of this name has come and still applies."""

    name: str


class Pursue(Message, frozen=True, gc=False, array_like=True):
    """A wake-up without a message: the goal is pursued again, as a dependency has changed.

    `step` is the next step, if the runtime has called `pursue` already.
    """

    step: Any = None


class Column(Value, frozen=True, gc=False, array_like=True):
    """A target named by a column of the crowd, such as "my host": each member's own value."""

    name: str


class Target(enum.Enum):
    """Targets that a kind can name without knowing any key."""

    SENDER = "sender"  # of the message that is being decided
    PARENT = "parent"  # the parent of the crowd
    SELF = "self"


SENDER, PARENT, SELF = Target.SENDER, Target.PARENT, Target.SELF


class Send(Value, frozen=True, gc=False, array_like=True):
    """One message that leaves once the frame is durable.

    `members` narrows a message to members of the crowd `to`; `values` gives one value for each of
    them, ascending, for a fact that keeps it in a column.
    """

    to: Any  # Key | Column | Target
    message: Message
    members: Bits | None = None
    values: tuple[Any, ...] = ()


class Decision(Value, frozen=True, gc=False, array_like=True):
    """The outcome of `decide` or `pursue`: facts, sends, a reply to the caller, and the reason."""

    facts: tuple[Fact, ...] = ()
    sends: tuple[Send, ...] = ()
    reply: Any = None
    because: str = ""
    notes: Any = None  # replaces the actor's notes: never journaled, lost with the process


class At(msgspec.Struct, frozen=True, gc=False):
    """The context of a turn: all that it may use besides the actor's own state."""

    now: float  # seconds since the epoch, never falling within a shard
    key: Key  # the cell's own key; of a crowd, the crowd's
    sender: Key | None = None
    members: Bits | None = None  # members of the sender, where the sender is a crowd
    values: tuple[Any, ...] = ()
    index: Any = None  # what the actor, or its parent, derives from children
    who: str = ""  # the principal, as text
    notes: Any = None  # of the last decision that had some, or None
    epoch: int = 0  # of the shard; orders to backends carry it, and older ones are refused
    position: int = 0  # of the frame being made; in a report, a number that only grows
    level: int = 0  # feature level: what all members of the cluster understand
    wall: float = 0.0  # as `now`, by a clock that people may set: for the moments that they name


class Rest(enum.Enum):
    """The reason why there is no next step."""

    SETTLED = "settled"  # the goal is reached
    WAITING = "waiting"  # for a message of another actor


SETTLED, WAITING = Rest.SETTLED, Rest.WAITING
OWN_STATE, KIND_STATES = "own state", "kind's states"  # all that an answer depends on; see `Kind`


class Goal(Message, frozen=True, gc=False, array_like=True):
    """An absolute goal from a parent: of several that wait, only the newest version counts."""

    version: int


class Latest(Message, frozen=True, gc=False, array_like=True):
    """An absolute report of which only the newest version matters; resent until it is seen."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    version: int


class Seen(Message, frozen=True, gc=False, array_like=True):
    """The runtime's acknowledgement of a `Latest`: this version is in a durable frame."""

    subject: str
    version: int


class Refused(Value, frozen=True, gc=False, array_like=True):
    """An answer: the request is wrong. `field` is the path of what is wrong, `text` says how.

    `again`: the same request may succeed later, so the answer is not kept under its request key.
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

    Nothing was done, as with its base class: a caller that only needs to know that looks no closer.
    """


class Absent(Value, frozen=True, gc=False, array_like=True):
    """An answer to a query: there is no such entity."""

    key: Key


class DeadLettered(Value, frozen=True, gc=False, array_like=True):
    """An answer: the message failed `ATTEMPTS_MAX` times and is kept for an operator."""

    text: str
