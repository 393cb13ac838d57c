"""Ports of the runtime: what a journal and a membership must provide to its shells.

Here are only shapes: the values that cross the port, and the protocol itself. The module must not
hold behaviour, know a kind of entity, or import an adapter; keys and bodies are opaque.

A **Journal** keeps what a claimed shard needs between two calls (epoch, op, chain, last position),
so the shell speaks of positions and bodies only. Beneath it, a store with conditional writes has a
smaller port of its own, **Rows** (`core/statements.py`): the protocol over it is `core/fencing.py`,
and `adapters/fenced_rows.py` makes a Journal of any Rows.

A shard's files, in words: a *frame* is journaled at a *position* (1, 2, 3, ... and never again); a
*checkpoint* holds the state as of a position; the *floor* names the checkpoint recovery starts
from; the *tail* are the frames after it; *ended* rows are final states, found by kind and key.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

JOURNAL_FORMAT = 1
FRAME_PART_BYTES_MAX = 256 * 1024
FRAME_BYTES_MAX = 16 * 1024 * 1024
CHECKPOINT_PART_BYTES_MAX = 1024 * 1024  # more in one round would make others' frames wait
SEGMENT_FRAMES = 256  # positions per segment: fixed by the format, for segments are cut whole
BUCKET_PARTS = 32


class ShardId(NamedTuple):
    """Where entities commit together: a group (a role) and a number within it."""

    group: str
    number: int


class Frame(Struct, frozen=True, gc=False):
    """What one pump journals, as one; its position is the last one plus one."""

    position: int
    body: bytes


class EndedRow(Struct, frozen=True, gc=False):
    """The final state of one key as of a committed position; of several the highest counts.

    Deletion is one more row with `deleted` set, never the absence of one.
    """

    kind: str
    key: str
    position: int
    body: bytes
    deleted: bool = False


class CheckpointPart(Struct, frozen=True, gc=False):
    """One piece of the checkpoint at `position`; numbers are 0, 1, 2, ... and the last says so.

    Within one epoch every new checkpoint is at a higher position than the one begun before: a key
    that was once written keeps its bytes, so a checkpoint given up is never begun again.
    """

    position: int
    number: int
    body: bytes
    last: bool = False


class Floor(Struct, frozen=True, gc=False):
    """Recovery shall start from the checkpoint at `position`, all of whose parts were handed in."""

    position: int


class Cut(Struct, frozen=True, gc=False):
    """Drop a small piece of what recovery no longer needs; one generation is kept back.

    `abandoned` names checkpoints (position, epoch) which the tail says were begun and which no
    register names; a store that can find them by itself ignores the list.
    """

    abandoned: tuple[tuple[int, int], ...] = ()


class Work(Struct, frozen=True, gc=False):
    """What one shard wants in one round. Any field may be empty; they are done in this order."""

    shard: ShardId
    epoch: int
    frame: Frame | None = None
    ended: tuple[EndedRow, ...] = ()
    parts: tuple[CheckpointPart, ...] = ()
    floor: Floor | None = None
    cut: Cut | None = None


# ---- answers --------------------------------------------------------------------------------


class Claimed(Struct, frozen=True, gc=False):
    """The shard is ours under `epoch`: read the checkpoint at the floor, then the tail."""

    epoch: int
    last_position: int
    floor: int
    floor_epoch: int


class Committed(Struct, frozen=True, gc=False):
    """All of the work is safe. `more_to_cut`: the cut asked for has further pieces."""

    more_to_cut: bool = False


class Fenced(Struct, frozen=True, gc=False):
    """We are not the owner (any more): drop the shard at once.

    `definite`: nothing of the work was written, and never will be. Otherwise nobody here knows
    what became of the frame; the next owner does.
    """

    text: str
    definite: bool = False


class Unclear(Struct, frozen=True, gc=False):
    """It may have happened: release nothing, hand in nothing else, `settle`, or give up the shard.

    `absent`: the store was seen without the write, and no copy of it is under way. That changes
    nothing for the shell, which goes on settling; it is there for health texts and for tests.
    """

    text: str
    absent: bool = False


Answer = Committed | Fenced | Unclear


class ClusterRecord(Struct, frozen=True, gc=False):
    """The cluster record, written once: who we are, in what format, with how many shards."""

    cluster_id: bytes
    format: int
    shards: dict[str, int]
    name: str = ""  # of a record of an earlier version, until a daemon gives it one
    level: int = 0  # feature level, the one thing that changes: it rises


class Sizes(Struct, frozen=True, gc=False):
    """What a shard takes in the store, for metrics and tests."""

    journal_rows: int = 0
    journal_bytes: int = 0
    checkpoint_rows: int = 0
    checkpoint_bytes: int = 0
    ended_rows: int = 0
    ended_bytes: int = 0


class JournalError(Exception):
    """What a journal cannot answer with a value; each kind below says what must stop."""


class Damaged(JournalError):
    """What was read is not what was written: halt this shard, loudly; never skip."""


class Overtaken(JournalError):
    """A read met a newer epoch: the shard is another owner's, and what we saw is no damage."""


class Unreachable(JournalError):
    """A read got no answer; claim again later."""


class JournalRefused(JournalError):
    """The caller or the configuration is wrong, and nothing was written."""


class JournalBroken(JournalError):
    """The store lost what it had acknowledged, or cannot be trusted with more: stop the process."""


class Journal(Protocol):
    """Durable, fenced history of shards: one writer each, told from all others by its epoch.

    After `Unclear` a shard's work is *pending*: only `settle`, `claim` and `drop` may follow for
    that shard, anything else is `JournalRefused`. After `Fenced` the shard is forgotten here.
    One thread commits; `claim` and `read_ended` may be called from others.
    """

    def bootstrap(self, groups: Mapping[str, int], *, name: str = "") -> ClusterRecord:
        """Write the cluster record and empty registers, or return the record that is there.

        A group that is not in the record is added, and a record without a name takes this one.
        Raises Refused if the format, the count of a group that is there, or the name differs: they
        never change.
        """

    def level(self) -> int:
        """The feature level of the cluster; 0 until it was raised. Raises Unreachable."""

    def raise_level(self, level: int) -> int:
        """Raise the feature level; it never falls. The level afterwards. Raises Unreachable."""

    def claim(self, shard: ShardId, owner: str) -> Claimed | Fenced | Unclear:
        """Bump the epoch: from then on nothing an older owner sends can apply.

        Fenced means that another claimer won. After Unclear simply claim again: that costs an
        epoch, never a frame. Raises Refused if the shard was never bootstrapped.
        """

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        """One round over all shards that have work (each at most once); answers in that order."""

    def settle(self, shards: Sequence[ShardId]) -> list[Answer]:
        """Send the pending writes of these shards (each at most once) again, byte for byte, and do
        what is left of them; answers in that order. A store that is shared does it abreast: one
        after the other the last would wait for as many time-outs as there are shards."""

    def release(self, shard: ShardId, epoch: int = 0) -> None:
        """Hint that the shard has no owner, for a fast takeover; forgets the shard here.

        Best effort: the next owner bumps the epoch anyway. Nothing is done where another epoch is
        held here by now: a word that waited must not undo a younger claim. 0: whichever it is.
        """

    def drop(self, shard: ShardId, epoch: int = 0) -> None:
        """Forget the shard here, pending work and all; writes nothing. `epoch` as above."""

    def read_checkpoint(self, shard: ShardId) -> Iterator[bytes]:
        """The parts of the checkpoint at the floor, in order, digests verified; none at floor 0.

        Raises Damaged, Overtaken or Unreachable, from the iterator.
        """

    def read_tail(self, shard: ShardId) -> Iterator[Frame]:
        """The committed frames after the floor, chain verified.

        Read the checkpoint first: the chain continues from its note; and do not move the floor
        while reading. Raises as above.
        """

    def read_ended(self, shard: ShardId, *, kind: str, key: str) -> EndedRow | None:
        """The newest final state; None if there is none or the newest says deleted."""

    def sizes(self, shard: ShardId) -> Sizes:
        """What the shard takes; a store that cannot tell cheaply may estimate."""

    def close(self) -> None:
        """Let go of everything; a journal opened anew knows nothing of our claims."""


# ---- membership -----------------------------------------------------------------------------


class MemberNode(Struct, frozen=True, gc=False):
    """What a daemon tells all others about itself; it vanishes with the daemon's session."""

    address: str
    roles: tuple[str, ...]
    unfit: tuple[str, ...] = ()  # groups it could not serve lately: others come first there
    leaving: bool = False
    damaged: tuple[ShardId, ...] = ()  # it could not recover them: another version may
    level: int = 0  # the highest feature level that its program knows


class MembershipView(Struct, frozen=True, gc=False):
    """Everything there is, whole, as `member` last read it; in between much may have gone unseen.

    Every change up to `version` is in it, perhaps later ones too. Once nothing changes any more,
    it is the version of the last change, for all members alike: so none is behind for ever.
    """

    member: str
    version: int
    members: dict[str, MemberNode]
    owners: dict[ShardId, str]


class SessionState(enum.Enum):
    """What a member knows of its session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # nobody answers; if it is over, a client is told only once it is back
    LOST = "lost"


class Session(Struct, frozen=True, gc=False):
    """The session of `member` is so from now on. `version`, when connected: its node is there."""

    member: str
    state: SessionState
    version: int = 0


class NodeOutcome(enum.Enum):
    """What became of an operation on an owner node."""

    HELD = "the node is ours"
    TAKEN = "the node is another's"
    GONE = "there is no node of ours"
    UNSURE = "it may have happened"


class NodeAnswer(Struct, frozen=True, gc=False):
    """The one answer to `create_owner` or `remove_owner`, as of `version` (not when unsure)."""

    member: str
    shard: ShardId
    outcome: NodeOutcome
    version: int = 0
    owner: str = ""  # whose node it is, when it is another's


MembershipNews = MembershipView | Session | NodeAnswer


class Membership(Protocol):
    """Who is there and who should own what; never who may write: only the journal says that.

    Nothing here waits. What comes of a call is told to the one listener and names the member it
    was learned for, so that the news of a session that is over can be told from those of the next.
    Views come in the order they were read, all else in the order it happened; a view may come
    after the answer to something it does not show yet. A session is begun by `join` and ends by
    `leave` or by being lost; of the nodes it made none outlives it.
    """

    def listen(self, tell: Callable[[MembershipNews], object]) -> None:
        """Where all news go, from any thread; called once, before everything else."""

    def join(self, member: str, node: MemberNode) -> None:
        """Begin a session, tried until it stands; what is left of an older one is let go.

        Its first news is `Session(CONNECTED)`, once the member node is there. Views follow by
        themselves: one soon, and one soon after every change.
        """

    def sure_for_s(self) -> float:
        """For how many seconds from now the session surely lives; 0 or less: it may be over.

        Counted from when the request was sent that was answered last, so that it holds though this
        process stood still since. Callable from any thread.
        """

    def announce(self, node: MemberNode) -> None:
        """The member node says this as soon as the session allows; only the newest counts."""

    def look(self) -> None:
        """Read a view though nothing seems to have changed."""

    def create_owner(self, shard: ShardId) -> None:
        """Held (also if it was ours before), taken, or unsure.

        Answered once, unless the session is lost before.
        """

    def remove_owner(self, shard: ShardId) -> None:
        """Gone (also if it never was ours), or unsure; answered like a creation."""

    def leave(self) -> None:
        """End the session and all its nodes; no more news of it."""


# ---- streams between daemons -----------------------------------------------------------------


class StreamListener(Protocol):
    """Who is told what happens to streams. Callable from any thread, and it never waits."""

    def accepted(self, stream: int) -> None:
        """Another daemon dialled us."""

    def arrived(self, stream: int, data: bytes) -> None:
        """One frame came, whole."""

    def closed(self, stream: int, text: str) -> None:
        """The stream is no more, or never came to be, and why; not said of what we closed."""


class Exchange(Protocol):
    """Streams of frames to and from other daemons. No call waits or raises.

    A stream should keep its frames whole and in order until it dies; who uses it survives worse.
    Its number is the adapter's own, and names no second stream as long as the process lives.
    """

    def listen(self, listener: StreamListener) -> None:
        """From now on tell these; called once, before all else."""

    def dial(self, address: str) -> int:
        """Begin a stream; frames may be sent at once, and wait until it stands."""

    def send(self, stream: int, data: bytes) -> None:
        """A frame, behind the others. What a stream that is closed is told is dropped."""

    def close(self, stream: int) -> None:
        """End a stream; what it has not yet told the ears, it never tells."""
