"""Ownership of one shard as one daemon sees it: the state table, and the ranking of members.

Turns (state, event or assignment) into the next state and an action. The table is total: a missing
pair could be a shard that nobody owns, or one from which two daemons fence each other for ever. Why
a shard is assigned is the affair of `core/owning/handoff.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from peloton.runtime.ports import MemberNode, ShardId


class OwnershipState(enum.Enum):
    """The state of a shard, seen from one daemon."""

    OUT = "not here, and no node of ours"
    ASKING = "the node is being created"
    ACQUIRED = "the node is ours; the claim is not begun"
    OPENING = "the node is ours; claiming and recovering"
    OPEN = "the node is ours; the shard takes mail"
    DRAINING = "the node is ours; finishing what is in flight"
    LEFT = "not here; a node of ours may exist"
    REMOVING = "not here; the node is being removed"
    DROPPING = "not ours; ending at once"


class OwnershipEvent(enum.Enum):
    """An event of a shard."""

    MADE = "answer of the service: the node is ours"
    TAKEN = "answer of the service: the node is another's"
    GONE = "answer of the service: no node of ours is left"
    UNKNOWN = "the outcome of the operation is unknown"
    OURS = "our best knowledge: the node is ours"
    NOT_OURS = "our best knowledge: the node is not ours"
    OPENED = "the shard takes mail"
    LOST = "the shard ended by itself"
    CLOSED = "the shard ended by our order"
    SESSION_LOST = "all our nodes are gone"


class Assignment(enum.Enum):
    """What the view asks of this daemon for a shard."""

    TAKE = "first in rank, and no other's node is in the way"
    KEEP = "begin nothing, end nothing"
    YIELD = "another should own it"


class ActionKind(enum.Enum):
    """An action of the shell; the first five are about one shard."""

    CREATE = "create the owner node"
    REMOVE = "remove the owner node"
    OWN = "claim the register and recover"
    DRAIN = "finish what is in flight and release the shard"
    DROP = "drop the shard at once"
    JOIN = "begin a session under the new member id"
    ANNOUNCE = "publish the new member node"
    READ_VIEW = "read a view"
    LEAVE = "end the session"


class ShardAction(NamedTuple):
    """An action; those about the daemon as a whole name no shard."""

    action: ActionKind
    shard: ShardId | None = None


class Transition(NamedTuple):
    """The next state, and the action on the way."""

    state: OwnershipState
    action: ActionKind | None = None


class NoTransition(enum.Enum):
    """Cells of the table without a next state."""

    STAY = "ignored"
    NEVER = "an answer to a question that was not asked: the membership breaks its contract"


Row = Mapping[OwnershipEvent | Assignment, Transition | NoTransition]
STAY, NEVER = NoTransition.STAY, NoTransition.NEVER
_N, _W = OwnershipEvent, Assignment
_NO_ANSWER: Row = {_N.MADE: NEVER, _N.TAKEN: NEVER, _N.GONE: NEVER, _N.UNKNOWN: NEVER}
# Late news of an instance of the shard that has ended.
_NOT_HERE: Row = {_N.OPENED: STAY, _N.LOST: STAY, _N.CLOSED: STAY}
_UNMOVED: Row = {_W.TAKE: STAY, _W.KEEP: STAY, _W.YIELD: STAY}
_CREATE, _REMOVE = (
    Transition(OwnershipState.ASKING, ActionKind.CREATE),
    Transition(OwnershipState.REMOVING, ActionKind.REMOVE),
)
_DRAIN, _DROP = (
    Transition(OwnershipState.DRAINING, ActionKind.DRAIN),
    Transition(OwnershipState.DROPPING, ActionKind.DROP),
)
_OUT, _LEFT, _END = (
    Transition(OwnershipState.OUT),
    Transition(OwnershipState.LEFT),
    Transition(OwnershipState.DROPPING),
)

_HERE: Row = {
    **_NO_ANSWER,
    _N.OURS: STAY,
    _N.NOT_OURS: _DROP,
    _N.LOST: _LEFT,
    _N.CLOSED: _LEFT,
    _N.SESSION_LOST: _DROP,
    _W.TAKE: STAY,
    _W.KEEP: STAY,
    _W.YIELD: _DRAIN,
}

TABLE: Mapping[OwnershipState, Row] = {
    OwnershipState.OUT: {
        **_NO_ANSWER,
        **_NOT_HERE,
        _N.OURS: _LEFT,  # a creation with unknown outcome has succeeded
        _N.NOT_OURS: STAY,
        _N.SESSION_LOST: STAY,
        _W.TAKE: _CREATE,
        _W.KEEP: STAY,
        _W.YIELD: STAY,
    },
    OwnershipState.ASKING: {
        **_NOT_HERE,
        **_UNMOVED,  # wait for the answer
        _N.MADE: Transition(OwnershipState.ACQUIRED),
        _N.TAKEN: _OUT,
        _N.GONE: NEVER,
        _N.UNKNOWN: _LEFT,
        _N.OURS: STAY,
        _N.NOT_OURS: STAY,
        _N.SESSION_LOST: _OUT,
    },
    OwnershipState.ACQUIRED: {
        **_NO_ANSWER,
        **_NOT_HERE,
        _N.OURS: STAY,
        _N.NOT_OURS: _OUT,
        _N.SESSION_LOST: _OUT,
        _W.TAKE: Transition(OwnershipState.OPENING, ActionKind.OWN),
        _W.KEEP: STAY,  # no takeover while the owner of the node is unknown
        _W.YIELD: _REMOVE,
    },
    OwnershipState.OPENING: {**_HERE, _N.OPENED: Transition(OwnershipState.OPEN)},
    OwnershipState.OPEN: {**_HERE, _N.OPENED: STAY},
    OwnershipState.DRAINING: {
        **_NO_ANSWER,
        **_UNMOVED,  # a drain is never undone
        _N.OURS: STAY,
        _N.NOT_OURS: _END,
        _N.OPENED: STAY,
        _N.LOST: STAY,  # crossed our action, which still will be answered
        _N.CLOSED: _LEFT,
        _N.SESSION_LOST: _END,
    },
    OwnershipState.LEFT: {
        **_NO_ANSWER,
        **_NOT_HERE,
        _N.OURS: STAY,
        _N.NOT_OURS: _OUT,
        _N.SESSION_LOST: _OUT,
        _W.TAKE: _CREATE,  # its answer tells whose node it is
        _W.KEEP: STAY,
        _W.YIELD: _REMOVE,
    },
    OwnershipState.REMOVING: {
        **_NOT_HERE,
        **_UNMOVED,
        _N.MADE: NEVER,
        _N.TAKEN: NEVER,
        _N.GONE: _OUT,
        _N.UNKNOWN: _LEFT,
        _N.OURS: STAY,
        _N.NOT_OURS: STAY,
        _N.SESSION_LOST: _OUT,
    },
    OwnershipState.DROPPING: {
        **_NO_ANSWER,
        **_UNMOVED,  # begin nothing before the old instance has ended
        _N.OURS: STAY,
        _N.NOT_OURS: STAY,
        _N.OPENED: STAY,
        _N.LOST: STAY,
        _N.CLOSED: _OUT,
        _N.SESSION_LOST: STAY,
    },
}


def ranked(shard: ShardId, members: Mapping[str, MemberNode]) -> list[str]:
    """Return the members in the order in which they should own the shard: the same on every daemon.

    The highest digest of (shard, member) wins, so a member that joins or leaves moves only its own
    share. Unfit members count only if none is fit: a shard that nobody tries has no owner at all.
    A member that found this very shard damaged never counts: the same program would fail again.
    """
    group = shard.group
    able = [
        member
        for member, node in members.items()
        if group in node.roles and not node.leaving and shard not in node.damaged
    ]
    fit = [m for m in able if group not in members[m].unfit]
    return sorted(fit or able, key=lambda member: (_weight(shard, member), member), reverse=True)


def _weight(shard: ShardId, member: str) -> bytes:
    name = f"{shard.group}\n{shard.number}\n{member}".encode()
    return blake2b(name, digest_size=8).digest()
