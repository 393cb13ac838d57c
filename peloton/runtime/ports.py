"""Ports of the runtime: what a journal, a membership and an exchange must provide to its shells.

This module defines the values that cross a port, and the protocols. Keys and bodies are opaque.

A **Journal** keeps what a claimed shard needs between two calls (epoch, op, chain, last position),
so the shell passes positions and bodies only. Below it, a store with conditional writes has a
smaller port of its own, **Rows** (`core/journal/statements.py`): the protocol over it is
`core/journal/fencing.py`, and `adapters/fenced_rows.py` makes a Journal of any Rows.

A shard is stored as follows: a *frame* is journaled at a *position* (1, 2, 3, ..., never reused); a
*checkpoint* holds the state as of a position; the *floor* is the position of the checkpoint from
which recovery starts; the *tail* are the frames after it; *ended* rows are final states, found by
kind and key.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

JOURNAL_FORMAT = 5
"""That of version 0.2.0, the first that is read: those before wrote 1 to 4."""
FRAME_PART_BYTES_MAX = 256 * 1024
FRAME_BYTES_MAX = 16 * 1024 * 1024
CHECKPOINT_PART_BYTES_MAX = 1024 * 1024  # more in one round would make others' frames wait
BUCKET_PARTS = 32
ROUND_SHARDS_MAX = 64
"""Works with a frame in one round: their registers have to fit one conditional write, and take
about 10 KB. When all of them begin a segment, their lists of segments are written with them: up to
60 KB more if each lists a hundred of one process, and 170 KB if each of these is of another one,
after as many restarts (`core/journal/segments.py`)."""


class ShardId(NamedTuple):
    """Entities that commit together: a group (a role) and a number within it."""

    group: str
    number: int

    def __str__(self) -> str:
        """Return the name as texts for people have it."""
        return f"shard {self.group}/{self.number}"


class Frame(Struct, frozen=True, gc=False):
    """The facts that one round journals, atomically; the position is the last one plus one."""

    position: int
    body: bytes


class EndedRow(Struct, frozen=True, gc=False):
    """The final state of one key as of a committed position; of several the highest counts.

    A deletion is one more row with `deleted` set, never the absence of a row.
    """

    kind: str
    key: str
    position: int
    body: bytes
    deleted: bool = False


class CheckpointPart(Struct, frozen=True, gc=False):
    """A part of the checkpoint at `position`; numbers are 0, 1, 2, ..., and `last` marks the end.

    Within one epoch every new checkpoint is at a higher position than the one begun before: the
    bytes under a key never change, so a checkpoint that was given up is never begun again.
    """

    position: int
    number: int
    body: bytes
    last: bool = False


class Floor(Struct, frozen=True, gc=False):
    """An order that recovery starts from the checkpoint at `position`, which is complete."""

    position: int


class Cut(Struct, frozen=True, gc=False):
    """An order to delete some of what recovery no longer needs; the previous generation is kept.

    `abandoned` names checkpoints (position, epoch) that were begun according to the tail and that
    no register names; a store that can find them by itself ignores the list.
    """

    abandoned: tuple[tuple[int, int], ...] = ()


class Work(Struct, frozen=True, gc=False):
    """The work of one shard in one round. Any field may be empty; they are done in this order."""

    shard: ShardId
    epoch: int
    frame: Frame | None = None
    ended: tuple[EndedRow, ...] = ()
    parts: tuple[CheckpointPart, ...] = ()
    floor: Floor | None = None
    cut: Cut | None = None


# ---- answers --------------------------------------------------------------------------------


class Claimed(Struct, frozen=True, gc=False):
    """The shard is claimed under `epoch`: read the checkpoint at the floor, then the tail.

    `scattered` as in `Committed`.
    """

    epoch: int
    last_position: int
    floor: int
    floor_epoch: int
    scattered: bool = False


class Committed(Struct, frozen=True, gc=False):
    """All of the work is durable. `more_to_cut`: there is more for a `Cut` to delete.

    `scattered`: to read the tail takes many reads for its size, so a checkpoint is due.
    """

    more_to_cut: bool = False
    scattered: bool = False


class Fenced(Struct, frozen=True, gc=False):
    """The shard has another owner: drop it at once.

    `definite`: nothing of the work was written, and never will be. Otherwise the outcome of the
    frame is unknown here; the next owner knows it.
    """

    text: str
    definite: bool = False


class RoundRefused(Struct, frozen=True, gc=False):
    """Another shard of the round was fenced: this shard's frame will never be committed.

    The claim in the store is still valid, but the shard's state in memory is ahead of its journal:
    drop it, and claim it again.
    """

    text: str


class Unclear(Struct, frozen=True, gc=False):
    """The write may have happened: commit nothing else, `settle`, or give up the shard."""

    text: str


class NoRoom(Unclear, frozen=True, gc=False):
    """Unclear, because the store is full: the same work will succeed once there is room."""


Answer = Committed | Fenced | RoundRefused | Unclear


class ClusterRecord(Struct, frozen=True, gc=False):
    """The cluster record, written once: id, format, and numbers of shards."""

    cluster_id: bytes
    format: int
    shards: dict[str, int]
    name: str = ""  # until a daemon gives it one
    level: int = 0  # feature level, which only rises
    generation: int = 0  # how often a rollback of the journal was accepted


class JournalError(Exception):
    """A failure that is no answer; each subclass says what must stop."""


class Damaged(JournalError):
    """What was read differs from what was written: halt this shard, loudly; never skip."""


class Overtaken(JournalError):
    """A read found a newer epoch: the shard has another owner, and what was read is no damage."""


class Unreachable(JournalError):
    """The store did not answer a read; claim again later."""


class JournalRefused(JournalError):
    """The caller or the configuration is wrong, and nothing was written."""


class RolledBack(JournalError):
    """The journal lacks what it had acknowledged; nothing was written.

    `acceptable`: the rollback may be accepted, which gives up what is missing.
    """

    def __init__(self, text: str, *, acceptable: bool = True) -> None:
        super().__init__(text)
        self.acceptable = acceptable


class JournalBroken(JournalError):
    """The store lost acknowledged writes, or cannot be trusted with more: stop the process."""


class Journal(Protocol):
    """Durable, fenced history of shards: one writer each, identified by its epoch.

    A *round* is one call of `commit`. Its frames are committed all together, or none of them ever
    is. What follows the frame of a work (ended rows, parts, floor, cut) is done once the frames
    are committed, for each shard by itself; a work without a frame stands for itself altogether.

    After `Unclear` a shard's work is *pending*: only `settle`, `claim` and `drop` may follow for
    that shard, anything else is `JournalRefused`. After `Fenced` or `RoundRefused` the shard is
    not held any more. One thread commits; `claim` and `read_ended` may be called from others.
    """

    def bootstrap(
        self, groups: Mapping[str, int], *, name: str = "", level: int = 0
    ) -> ClusterRecord:
        """Write the cluster record and empty registers, or return the existing record.

        A new cluster begins at the feature level `level`; that of an existing one stays.

        A group that is not in the record is added, and a record without a name takes this one.
        Raises JournalRefused if the format, the number of shards of an existing group, or the name
        differs: they never change.
        """

    def level(self) -> int:
        """Return the feature level of the cluster; 0 until it was raised. Raises Unreachable."""

    def raise_level(self, level: int) -> int:
        """Raise the feature level, which never falls; return the new one. Raises Unreachable."""

    def probe(self) -> None:
        """Perform a write that changes nothing. Raises Unreachable.

        Only a store that takes commits answers it, and it may wait as long as those. Callable from
        any thread.
        """

    def claim(self, shard: ShardId, owner: str, *, above: int = 0) -> Claimed | Fenced | Unclear:
        """Bump the epoch: from then on nothing an older owner sends can apply.

        `above`: an epoch that is known from outside, and may be higher than those of the journal
        where that was restored from a backup. The new one is above it as well.
        Fenced means that another claimer was first. After Unclear claim again: that costs an
        epoch, never a frame. Raises JournalRefused if the shard was never bootstrapped.
        """

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        """Write a round of shards with work, each at most once; return the answers in order.

        Raises JournalRefused, and writes nothing, if more than ROUND_SHARDS_MAX have a frame. If a
        shard with a frame is fenced or not held, the others with one are answered `RoundRefused`.
        While the frames are undecided, all works with one are answered `Unclear`.
        """

    def settle(self, shards: Sequence[ShardId]) -> list[Answer]:
        """Send the pending writes of these shards again, byte for byte, and do the rest.

        Each shard is named at most once; the answers are in order. A shared store settles them
        concurrently: one after the other, the last would wait for as many timeouts as there are
        shards.

        Any shard of a round settles the frames of all, also of those that were dropped or claimed
        meanwhile; the outcome is kept for each of the others that is still held until it asks.
        """

    def release(self, shard: ShardId, epoch: int = 0) -> None:
        """Record that the shard has no owner, for a fast takeover; it is not held any more.

        Best effort: the next owner bumps the epoch anyway. Nothing is done if another epoch is
        held by now: a late call must not undo a younger claim. 0: whichever it is. With pending
        work it is a `drop`: after another write nobody could tell whether that work was done.
        """

    def drop(self, shard: ShardId, epoch: int = 0) -> None:
        """Stop holding the shard, with its pending work; writes nothing. `epoch` as above."""

    def read_checkpoint(self, shard: ShardId) -> Iterator[bytes]:
        """Yield the parts of the checkpoint at the floor, verified; none at floor 0.

        Raises Damaged, Overtaken or Unreachable, from the iterator or before there is one.
        """

    def read_tail(self, shard: ShardId) -> Iterator[Frame]:
        """Yield the committed frames after the floor, chain verified.

        Read the checkpoint first, because the chain continues from its value, and do not move the
        floor while reading. Raises as above.
        """

    def read_ended(self, shard: ShardId, *, kind: str, key: str) -> EndedRow | None:
        """Return the newest final state; None if there is none or the newest is a deletion."""

    def close(self) -> None:
        """Release everything; a journal that is opened again does not know our claims."""


# ---- membership -----------------------------------------------------------------------------


class MemberNode(Struct, frozen=True, gc=False):
    """The published data of a daemon; they vanish with the daemon's session."""

    address: str
    roles: tuple[str, ...]
    unfit: tuple[str, ...] = ()  # groups it failed to serve lately: others rank before it there
    leaving: bool = False
    damaged: tuple[ShardId, ...] = ()  # it could not recover them: another version may
    level: int = 0  # the highest feature level that its program knows
    unreached: dict[str, str] = {}  # members it is out of touch with (also itself) → why
    aside: bool = False  # it owns nothing, as it and others do not reach each other


class MembershipView(Struct, frozen=True, gc=False):
    """All members and owners as `member` last read them; changes in between may be missed.

    The view includes every change up to `version`, perhaps later ones too. Versions are the same
    for all members (the transaction id of the last change), so no member stays behind for ever.
    """

    member: str
    version: int
    members: dict[str, MemberNode]
    owners: dict[ShardId, str]


class SessionState(enum.Enum):
    """The state of a member's session, as it knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no answer; if it has expired, we learn that only when reconnected
    LOST = "lost"


class Session(Struct, frozen=True, gc=False):
    """The new state of `member`'s session; if connected, its node exists as of `version`."""

    member: str
    state: SessionState
    version: int = 0


class NodeOutcome(enum.Enum):
    """The outcome of an operation on an owner node."""

    OURS = "the node is ours"
    TAKEN = "the node is another's"
    GONE = "there is no node of ours"
    UNKNOWN = "it may have happened"


class NodeAnswer(Struct, frozen=True, gc=False):
    """The answer to `create_owner` or `remove_owner`, as of `version` (0 when unknown)."""

    member: str
    shard: ShardId
    outcome: NodeOutcome
    version: int = 0
    owner: str = ""  # whose node it is, when it is another's


MembershipNews = MembershipView | Session | NodeAnswer


class Membership(Protocol):
    """The members, and the shards each should own; the journal decides who may write.

    No call waits. Results go to the one listener and name the member of their session, so that
    news of an ended session can be distinguished from those of the next. Views arrive in the order
    they were read, all other news in the order they happened; a view may arrive after the answer
    to an operation that it does not show yet. A session begins with `join` and ends with `leave`
    or by being lost; all its nodes end with it.
    """

    def listen(self, listener: Callable[[MembershipNews], object]) -> None:
        """Set the receiver of all news, called from any thread; call this once, first."""

    def join(self, member: str, node: MemberNode) -> None:
        """Begin a session, retried until it succeeds; an older one is abandoned.

        Its first news is `Session(CONNECTED)`, once the member node exists. Views follow without
        being requested: one soon, and one soon after every change.
        """

    def sure_for_s(self) -> float:
        """Return for how many seconds the session is certainly alive; ≤ 0: it may have expired.

        The time counts from when the last answered request was sent, so that it holds even if this
        process was paused since. Callable from any thread.
        """

    def announce(self, node: MemberNode) -> None:
        """Update the member node as soon as the session allows; only the newest counts."""

    def request_view(self) -> None:
        """Read a view even if nothing seems to have changed."""

    def create_owner(self, shard: ShardId) -> None:
        """Create the owner node. Answered by HELD (also if it was ours before), TAKEN or UNKNOWN.

        Answered once, unless the session is lost before.
        """

    def remove_owner(self, shard: ShardId) -> None:
        """Remove the owner node. Answered once, by GONE (also if it never was ours) or UNKNOWN."""

    def leave(self) -> None:
        """End the session and all its nodes; no more news of it follows."""


# ---- streams between daemons -----------------------------------------------------------------


class StreamListener(Protocol):
    """The receiver of the events of streams. Callable from any thread; it never waits."""

    def accepted(self, stream: int) -> None:
        """Take a stream that another daemon dialled."""

    def arrived(self, stream: int, data: bytes) -> None:
        """Take one whole frame."""

    def closed(self, stream: int, text: str) -> None:
        """Take the end of a stream, or why it did not open; not called for our own `close`."""


class Exchange(Protocol):
    """Streams of frames to and from other daemons. No call waits or raises.

    A stream should keep its frames whole and in order until it ends; its users tolerate worse.
    Its number is chosen by the adapter, and never reused while the process lives.
    """

    def listen(self, listener: StreamListener) -> None:
        """Set the receiver of all events; call this once, first."""

    def dial(self, address: str) -> int:
        """Begin a stream; frames may be sent at once, and wait until it is open."""

    def send(self, stream: int, data: bytes) -> None:
        """Send a frame after the others. On a closed stream it is dropped."""

    def close(self, stream: int) -> None:
        """End a stream; events of it that the listener did not get yet are dropped."""


# ---- secrets of jobs -------------------------------------------------------------------------


class SealedSecret(Struct, frozen=True, gc=False):
    """A value of a secret as it is stored: without the key of this id nobody can read it.

    A new value is another row with a later `made` (microseconds since the epoch); of several of one
    job and id the latest counts.
    """

    job: str
    id: str
    made: int
    key_id: str
    data: bytes


class SecretStore(Protocol):
    """Sealed secrets, by job. What is written is safe once the call returns.

    Each call may wait, may be repeated, and may come from any thread; it raises Unreachable when
    the store did not answer.
    """

    def put(self, rows: Sequence[SealedSecret]) -> None:
        """Write rows of one job, in place of those with the same id and `made`."""

    def of_job(self, job: str) -> list[SealedSecret]:
        """Return all rows of a job."""

    def delete(self, rows: Sequence[SealedSecret]) -> None:
        """Delete rows of one job; rows that do not exist are ignored."""

    def forget(self, job: str) -> None: ...

    def jobs(self, after: str, *, most: int) -> list[str]:
        """Return the next jobs that have rows, in an order of the store's own.

        `after` is the last one of the page before, empty for the first page.
        """

    def close(self) -> None:
        """Release the connection or file."""


class Sealing(Protocol):
    """Encrypts values of secrets, and decrypts them."""

    def seal(self, job: str, secret: str, *, made: int, data: bytes) -> SealedSecret:
        """Encrypt with the newest key."""

    def unseal(self, row: SealedSecret) -> bytes:
        """Decrypt the value. Raises BadSeal."""

    def is_newest(self, row: SealedSecret) -> bool:
        """Return whether the row was encrypted with the newest key."""

    def fingerprint(self, data: bytes) -> bytes:
        """Return a digest that equal values share, and that discloses nothing of the value."""


class BadSeal(Exception):
    """A stored secret cannot be decrypted: its key is not known here, or it was changed."""
