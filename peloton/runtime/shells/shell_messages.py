"""What shells say to each other: each letter is one item of an inbox, and carries a batch.

Must hold no behaviour. An actor is named by its pykka ref, so an answer to a shell that was
replaced meanwhile finds nobody, instead of its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

import pykka

from peloton.runtime.core.envelope import Envelope, Stamp
from peloton.runtime.ports import Answer, Claimed, EndedRow, Frame, ShardId, Work
from peloton.runtime.vocabulary import Key

Ref = pykka.ActorRef[Any]


class Mail(NamedTuple):
    """Messages for one shard or one soft machine, in order; the stamp of the shard that speaks."""

    envelopes: list[Envelope]
    stamp: Stamp | None = None


class Wake(NamedTuple):
    """The moment a shell asked to be woken at has come."""


WAKE = Wake()

# ---- to the journal and the reader, and back ----


class Commit(NamedTuple):
    """To the journal: put this into the next round."""

    work: Work
    sender: Ref


class Settle(NamedTuple):
    """To the journal: send what is pending once more."""

    shard: ShardId
    sender: Ref


class Release(NamedTuple):
    """To the journal: the shard, claimed under this epoch, has no owner from now on."""

    shard: ShardId
    epoch: int
    sender: Ref


class Forget(NamedTuple):
    """To the journal: what it holds of this claim, pending or not, is let go of."""

    shard: ShardId
    epoch: int


class Released(NamedTuple):
    """From the journal: it was told to the store, as far as that was possible."""


class WorkDone(NamedTuple):
    """From the journal: what became of the work."""

    answer: Answer


class Claim(NamedTuple):
    """To the reader: claim the shard and read all of it."""

    shard: ShardId
    sender: Ref


class ClaimTaken(NamedTuple):
    """From the reader: the shard is ours, and this is what it holds."""

    claimed: Claimed
    parts: list[bytes]
    frames: list[Frame]


class ClaimRefused(NamedTuple):
    """From the reader: no claim, or no reading; `damaged` is for a person.

    `unreachable`: for want of an answer of the store.
    """

    text: str
    damaged: bool = False
    unreachable: bool = False


class Load(NamedTuple):
    """To the reader: final states that messages wait for."""

    shard: ShardId
    keys: tuple[Key, ...]
    sender: Ref


class Loaded(NamedTuple):
    """From the reader. `troubles` are keys whose rows cannot be read, and why: for a person."""

    rows: list[tuple[Key, EndedRow | None]]
    troubles: list[tuple[Key, str]] = []


# ---- orders ----


class Inspect(NamedTuple):
    """To a shard: run this on the core, between two turns, and answer the future."""

    look: Callable[[Any], Any]
    answer: Future[Any]


class Drain(NamedTuple):
    """No new turns; finish the frame in flight and give the shard back."""


# ---- to the root ----


class Own(NamedTuple):
    """Take these shards."""

    shards: tuple[ShardId, ...]


class Disown(NamedTuple):
    """Give these shards back; the future is answered when they are."""

    shards: tuple[ShardId, ...]
    answer: Future[Any]


class Drop(NamedTuple):
    """Let go of these shards at once, whatever is in flight; each is reported closed."""

    shards: tuple[ShardId, ...]


class AwaitOpen(NamedTuple):
    """Answer the future once all shards that are owned take mail, or are halted as damaged."""

    answer: Future[Any]


class Opened(NamedTuple):
    """A shard has recovered and takes mail."""

    shard: ShardId


class Closed(NamedTuple):
    """A shard was given back, by order."""

    shard: ShardId


class ShardLost(NamedTuple):
    """A shard is no more here: fenced, unclear for too long, or its shell raised (`broken`).

    `gave_up`: the store was out of reach for so long that another daemon should try.
    """

    shard: ShardId
    text: str
    broken: bool = False
    damaged: bool = False
    gave_up: bool = False


class ShellFailed(NamedTuple):
    """A shell that cannot be replaced raised; `fatal` ones end the daemon."""

    name: str
    text: str
    fatal: bool


class PeerReachable(NamedTuple):
    """To each shard: somebody who was out of reach, or had no owner, may hear us again."""


# ---- to a soft machine ----


class Renamed(NamedTuple):
    """Our member id, and which of the members that have such a machine we are.

    With another id than before we are new to all others.
    """

    member: str
    number: int = 0
    count: int = 1


# ---- to the claim shell ----


class DrainAll(NamedTuple):
    """The daemon goes: give every shard back, leave, and then answer the future."""

    answer: Future[Any]


def send(ref: Ref, message: Any) -> bool:
    """Tell an actor; False where it is no more."""
    try:
        ref.tell(message)
    except pykka.ActorDeadError:
        return False
    return True


def resolve(future: Any, value: Any) -> None:
    """Answer an ask; one that was given up meanwhile is left alone."""
    try:
        future.set_result(value)
    except InvalidStateError:
        pass  # the asker's deadline was first


def reply_addresses(envelopes: Iterable[Envelope]) -> list[Any]:
    """The addresses of those that wait for an answer."""
    return [envelope.reply_to for envelope in envelopes if envelope.reply_to is not None]
