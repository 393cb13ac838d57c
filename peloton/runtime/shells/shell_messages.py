"""The messages between shells; each is one item of an inbox and may carry a batch of mail.

An actor is addressed by its pykka ref, so an answer to a shell that was replaced in the meantime is
dropped and does not reach its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

import pykka

from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.ports import Answer, Claimed, EndedRow, Frame, ShardId, Work
from peloton.runtime.vocabulary import Key

Ref = pykka.ActorRef[Any]


class Mail(NamedTuple):
    """Envelopes for one shard or one ephemeral service, in order.

    `stamp` names the sending shard and its epoch; None if the sender is no shard.
    """

    envelopes: list[Envelope]
    stamp: Stamp | None = None


class Wake(NamedTuple):
    """The time at which a shell wanted to be woken has come."""


WAKE = Wake()

# ---- to the journal and the reader, and back ----


class Commit(NamedTuple):
    """To the journal: commit these works as one round.

    The sender of each work only addresses the answers: an answer to a shell that has ended must not
    reach its successor.
    """

    works: dict[Ref, Work]
    sender: Ref


class Settle(NamedTuple):
    """To the journal: repeat the pending writes of these shards, whose outcome is unclear."""

    shards: dict[Ref, ShardId]
    sender: Ref


class Release(NamedTuple):
    """To the journal: give up the claim of this epoch; the shard has no owner from now on."""

    shard: ShardId
    epoch: int
    sender: Ref


class DropClaim(NamedTuple):
    """To the journal: drop its memory of this claim, pending writes included."""

    shard: ShardId
    epoch: int


class Released(NamedTuple):
    """From the journal: the claim was released in the store, if the store could be reached."""


class WorkDone(NamedTuple):
    """From the journal: the outcome of works, or of repeated writes, by their senders."""

    answers: dict[Ref, Answer]


class Claim(NamedTuple):
    """To the reader: claim the shard and read all of it."""

    shard: ShardId
    sender: Ref


class EpochObeyed(NamedTuple):
    """To the reader: the shard's backend has obeyed an owner of this epoch."""

    shard: ShardId
    epoch: int


class ClaimTaken(NamedTuple):
    """From the reader: the shard is claimed, and these are its checkpoint and its tail."""

    claimed: Claimed
    parts: list[bytes]
    frames: list[Frame]


class ClaimRefused(NamedTuple):
    """From the reader: the shard could not be claimed or read, or its claim is too low.

    `damaged`: what is stored cannot be read, and a person has to act. `unreachable`: the store did
    not answer.
    """

    text: str
    damaged: bool = False
    unreachable: bool = False


class Load(NamedTuple):
    """To the reader: read these final states, for which messages are deferred."""

    shard: ShardId
    keys: tuple[Key, ...]
    sender: Ref


class Loaded(NamedTuple):
    """From the reader: the rows by key, None for a key without one.

    `problems` are keys whose rows cannot be read, with the reason; a person has to act.
    """

    rows: list[tuple[Key, EndedRow | None]]
    problems: list[tuple[Key, str]] = []


# ---- orders ----


class Inspect(NamedTuple):
    """To a shard: call this with the core, between two turns, and answer the future."""

    function: Callable[[Any], Any]
    answer: Future[Any]


class Drain(NamedTuple):
    """To a shard: begin no more turns, finish the frame in flight and release the shard."""


# ---- to the root ----


class Own(NamedTuple):
    """Claim these shards."""

    shards: tuple[ShardId, ...]


class Disown(NamedTuple):
    """Drain and release these shards; the future is answered when all are released."""

    shards: tuple[ShardId, ...]
    answer: Future[Any]


class Drop(NamedTuple):
    """Drop these shards at once, with what is in flight; each is reported `Closed`."""

    shards: tuple[ShardId, ...]


class AwaitOpen(NamedTuple):
    """Answer the future once every owned shard accepts mail or is halted as damaged."""

    answer: Future[Any]


class Opened(NamedTuple):
    """A shard has recovered and accepts mail."""

    shard: ShardId


class Closed(NamedTuple):
    """A shard was released or dropped, by order."""

    shard: ShardId


class ShardLost(NamedTuple):
    """A shard ended by itself: fenced, unclear for too long, or its shell raised (`broken`).

    `gave_up`: the store was unreachable for so long that another daemon should try. `by_another`:
    another shard of its round was lost; this one is to be claimed again at once. `away`: the store
    did not answer its claim.
    """

    shard: ShardId
    text: str
    broken: bool = False
    damaged: bool = False
    gave_up: bool = False
    by_another: bool = False
    away: bool = False


class ShellFailed(NamedTuple):
    """A shell that cannot be replaced raised; `fatal`: the daemon has to end."""

    name: str
    text: str
    fatal: bool


class GoalsRest(NamedTuple):
    """To each shard: pursue no goals, or go on; see `Shard.rest`."""

    resting: bool


class PeerReachable(NamedTuple):
    """To shards, and services that ask for it: repeat what is owed, or was requested.

    A peer is reachable again or a shard has an owner again.
    """


# ---- to an ephemeral service ----


class RoundLost(NamedTuple):
    """To a service: messages of shards since the last round may never have happened; start over."""


class Renamed(NamedTuple):
    """Our member id, and our number among the `count` members that run this service.

    A changed id means a new session: to all other members we are new.
    """

    member: str
    number: int = 0
    count: int = 1


# ---- to the feature shell ----


class ReadLevel(NamedTuple):
    """To the feature shell: we joined the cluster, whose level may have been raised before."""


# ---- to the claim shell ----


class DrainAll(NamedTuple):
    """The daemon stops: release every shard, leave the cluster, then answer the future."""

    answer: Future[Any]


def send(ref: Ref, message: Any) -> bool:
    """Put a message into the inbox of an actor; return False if the actor has ended."""
    try:
        ref.tell(message)
    except pykka.ActorDeadError:
        return False
    return True


def resolve(future: Any, value: Any) -> None:
    """Answer a call; one that was cancelled or answered in the meantime is left as it is."""
    try:
        future.set_result(value)
    except InvalidStateError:
        pass  # the caller's deadline came first


def reply_addresses(envelopes: Iterable[Envelope]) -> list[Any]:
    """Return the reply addresses of the envelopes whose senders wait for an answer."""
    return [envelope.reply_to for envelope in envelopes if envelope.reply_to is not None]
