"""A kind of actor, as registered with the runtime: its tables, and its optional parts.

What only some kinds need stands in a record of its own, so that a simple kind names what all have
and nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.runtime.vocabulary import SETTLED, At, Decision, Key, Message, Rest, Send

Decide = Callable[[Any, Any, At], Decision]
Evolve = Callable[[Any, Any], Any]
Pursuing = Callable[[Any, At], "Decision | Rest"]


def settled(state: Any, at: At) -> Rest:
    """Rest: the `pursue` of kinds that take no step by themselves."""
    return SETTLED


def no_deadline(state: Any) -> tuple[str, float] | None:
    """Return None: the `deadline` of kinds without deadlines."""
    return None


def never_ends(state: Any, index: Any) -> bool:
    """Return False: the `ended` of kinds whose entities stay in memory for good."""
    return False


def no_phase(state: Any, index: Any) -> Any:
    """Return None: the `phase` of kinds whose changes may all be gathered for an interval."""
    return None


def no_parent(name: Key, state: Any) -> Key | None:
    """Return None: the `parent` of kinds without a parent."""
    return None


class CrowdKind(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a kind whose entities are the members of a crowd.

    `columns` names the values that differ from member to member, with their types. `write` is what
    a fact writes to them: fact class → function of (fact, now) → {column: value}; `per_member`
    names the column that takes the values of a message, one for each member. `resolve` completes a
    message from the parent's state: message class → function of (parent's state, message, `spec` of
    the member) → message. `archive` is for facts that move values between a member's columns:
    function of (state before, fact, read: a column) → {column: value}.
    """

    columns: Mapping[str, Any]
    write: Mapping[type, Callable[[Any, float], Mapping[str, Any]]]
    parent: Callable[[Key], Key]
    per_member: Mapping[type, str] = {}
    resolve: Mapping[type, Callable[[Any, Any, Any], Message]] = {}
    archive: Mapping[type, Callable[..., Mapping[str, Any]]] = {}


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of the ended entities of a kind in memory: count, bytes as encoded, and seconds.

    Beyond the first bound that is reached the oldest is evicted. `ended_at` returns when an entity
    ended, 0 if that is not known. `parting`: `core/ended/parting.py`.
    """

    count: int
    size: float = math.inf
    seconds: float = math.inf
    ended_at: Callable[[Any], float] = lambda state: 0.0
    parting: Callable[[Key, Any], Message | None] | None = None


class Reporting(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a parent whose children changed: `make` returns it.

    A report is sent at most once in an interval, but at once if the parent's phase changed, which
    is how far the children are. A final phase says all a report would.
    """

    make: Callable[[Any, At], tuple[Send, ...]]
    interval_s: float = 0.0
    phase: Callable[[Any, Any], Any] = no_phase  # of (state, index)
    final: Callable[[Any], bool] = lambda phase: False


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The listing of entities of a kind.

    `texts` returns the texts, in small letters, that searches look in; `ranked` names a field of
    the summary that never changes, by which they are ordered, and its key.
    """

    summary: Callable[[Key, Any], Any]
    texts: Callable[[Any], tuple[str, ...]] | None = None
    ranked: tuple[str, str] | None = None


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of actor. Every field is pure.

    `absent` is the table for keys that do not exist: message class → decision without a state. A
    class that it does not list changes nothing there, and has no answer.
    `lookup` names the messages that need the `ended` row of a key that is not in memory.
    `since` has facts and answers of later versions: class → level. Below it, produce none of them.
    """

    name: str
    group: str
    state: type
    decide: Mapping[type, Decide]
    absent: Mapping[type, Callable[[Any, At], Decision]]
    pursue: Pursuing = settled  # the next step towards the goal
    at_rest: Pursuing | Rest | None = None  # in place of `pursue`: `core/turning/pursuits.py`
    evolve: Mapping[type, Evolve]
    messages: Mapping[int, type]
    facts: Mapping[int, type]
    answers: Mapping[int, type] = {}
    partition: Callable[[Key], str | int]
    deadline: Callable[[Any], tuple[str, float] | None] = no_deadline  # in s from when it was set
    moment: Callable[[Any], tuple[str, float] | None] = no_deadline  # a deadline by `At.wall`
    owed: Callable[[Any], tuple[Send, ...]] = lambda state: ()
    ended: Callable[[Any, Any], bool] = never_ends  # of (state, index)
    retention: Retention | None = None  # of ended ones; None: they leave memory at once
    parent: Callable[[Key, Any], Key | None] = no_parent
    reporting: Reporting | None = None
    listing: Listing | None = None
    index: Callable[[], Any] | None = None
    inspect: Mapping[type, Callable[..., Any]] = {}
    depends: Callable[[Any], str] | None = None  # of a query: OWN_STATE, KIND_STATES, "" (more)
    recall_s: Callable[[Any], float | None] = lambda notes: None  # when notes need a `Pursue`
    follows: Callable[[Key], Key] | None = None  # the crowd whose parent an entity is
    lookup: frozenset[type] = frozenset()
    lazy: frozenset[type] = frozenset()  # facts that may wait: `core/turning/lazy_facts.py`
    fresh: Callable[[Any], bool] = lambda message: False  # its key is new: needs no lookup
    unfinished: Callable[[Any], bool] = lambda state: False  # dropped by recovery
    crowd: CrowdKind | None = None
    since: Mapping[type, int] = {}
    level: int = 0  # the newest by which it decides otherwise, with no class of it
    queries: Mapping[int, type] = {}  # numbered beside the messages, from 501 up
