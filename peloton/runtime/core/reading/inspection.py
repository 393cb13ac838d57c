"""Queries to a shard as a whole, from any daemon: dead letters, stories, changes, listings.

Turns a query to `shard/<group>/<number>` into an answer that can be sent: summaries as values of
their kind, everything journaled as rows of frames. `Redrive`, the one command among them, is
carried out by the shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.reading.changes import PAGE_MAX, Change, Changes, Mark, Page
from peloton.runtime.core.reading.listing import ListViews
from peloton.runtime.core.reading.views import Views
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Fact, Key, Message, Query, Unavailable, Value, key

SHARD_KIND = "shard"


def shard_key(shard: ShardId) -> Key:
    """Return the address of a shard as a whole."""
    return key(SHARD_KIND, shard.group, shard.number)


class ListDeadLetters(Query, frozen=True, gc=False, array_like=True):
    """Asks for dead letters and quarantines. Answered by `InspectionRows`, a row for each fact."""


class ReadStory(Query, frozen=True, gc=False, array_like=True):
    """Asks what an entity did lately and why. Answered by `InspectionRows`.

    `member` is one of a crowd, -1: all.
    """

    of: Key
    member: int = -1


class ReadChanges(Query, frozen=True, gc=False, array_like=True):
    """Asks for changes after a mark, or for the present mark. Answered by `ChangesPage`."""

    mark: tuple[int, int] | None = None
    limit: int = PAGE_MAX


class FollowChanges(Query, frozen=True, gc=False, array_like=True):
    """Asks for changes like `ReadChanges`, of some entities, and is answered when there is one.

    `names` are second parts of keys (`task/<name>/3`), `kinds` first parts; empty: any. A shard
    answers at once if it has such changes after the mark, or a gap, or was given no mark; else
    with the first frame that has some, or with an empty page after `followers.FOLLOW_S`.
    """

    mark: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    limit: int = PAGE_MAX

    def behind(self, mark: tuple[int, int]) -> FollowChanges:
        """Return the same query, from that mark on."""
        return msgspec.structs.replace(self, mark=mark)


class Redrive(Message, frozen=True, gc=False, array_like=True):
    """An operator's command: try the dead letters of a key again, and lift its quarantine."""

    of: Key


class InspectionRows(Value, frozen=True, gc=False, array_like=True):
    """Rows in the encoding of frames, each with its time."""

    rows: tuple[tuple[float, bytes], ...]


class ChangesPage(Value, frozen=True, gc=False, array_like=True):
    """A page of changes: rows with their (position, k)."""

    rows: tuple[tuple[int, int, float, bytes], ...]
    gap: bool
    mark: tuple[int, int]
    more: bool


class RedriveDone(Value, frozen=True, gc=False, array_like=True):
    """The answer to `Redrive`: it was done, and is journaled."""


QUERIES: dict[int, type] = {
    501: ListViews,
    502: ListDeadLetters,
    503: ReadStory,
    504: ReadChanges,
    505: FollowChanges,
}
SHARD_MESSAGES: dict[int, type] = {1: Redrive}
SHARD_ANSWERS: dict[int, type] = {501: InspectionRows, 502: ChangesPage, 503: RedriveDone}


class InspectedShard(Protocol):
    """The part of a shard that queries read."""

    codec: Codec
    views: Views
    changes: Changes

    def dead_letter_facts(self) -> Mapping[Key, Iterable[Fact]]:
        """Return dead letters and quarantines, as the facts that recorded them."""

    def story_of(self, key: Key, member: int | None) -> list[StoryLine]:
        """Return the story of an entity, oldest first."""


def answer_inspection(shard: InspectedShard, query: Message | Query) -> Any:
    """Answer a query to the shard; called between two turns."""
    if isinstance(query, ListViews):
        return shard.views.page(query)
    if isinstance(query, ListDeadLetters):
        facts = [(of, fact) for of, some in shard.dead_letter_facts().items() for fact in some]
        return InspectionRows(
            tuple((0.0, shard.codec.encode_entry(Entry(of, (f,)))) for of, f in facts)
        )
    if isinstance(query, ReadStory):
        member = None if query.member < 0 else query.member
        lines = shard.story_of(query.of, member)
        return InspectionRows(tuple((line.at, _row(shard.codec, line)) for line in lines))
    if isinstance(query, ReadChanges):
        return _read(shard, query)
    return Unavailable(f"a shard does not answer {type(query).__name__}")


def story_lines(codec: Codec, answer: InspectionRows) -> list[StoryLine]:
    """Decode the lines of an answer."""
    return [_line(codec.decode_entry(row), at) for at, row in answer.rows]


def changes_of(codec: Codec, read: ChangesPage) -> list[Change]:
    """Decode the changes of an answer."""
    return [
        Change(Mark(position, k), _line(codec.decode_entry(row), at))
        for position, k, at, row in read.rows
    ]


def facts_of(codec: Codec, answer: InspectionRows) -> list[tuple[Key, Fact]]:
    """Decode the facts of an answer, each with its key."""
    entries = [codec.decode_entry(row) for _, row in answer.rows]
    return [(entry.key, fact) for entry in entries for fact in entry.facts]


def _read(shard: InspectedShard, query: ReadChanges) -> ChangesPage:
    mark = Mark(*query.mark) if query.mark is not None else None
    return read_of(shard.codec, shard.changes.after(mark, min(query.limit, PAGE_MAX)))


def read_of(codec: Codec, page: Page, *, rows_of: dict[Mark, bytes] | None = None) -> ChangesPage:
    """Encode a page. `rows_of` caches rows for pages with the same changes."""
    known = {} if rows_of is None else rows_of
    for change in page.changes:
        if change.mark not in known:
            known[change.mark] = _row(codec, change.line)
    rows = tuple((*one.mark, one.line.at, known[one.mark]) for one in page.changes)
    return ChangesPage(rows, page.gap, (page.mark.position, page.mark.k), page.more)


def _row(codec: Codec, line: StoryLine) -> bytes:
    because, who = line.because, line.who
    entry = Entry(line.key, line.facts, line.members, cause=line.cause, because=because, who=who)
    return codec.encode_entry(entry)


def _line(entry: Entry, at: float) -> StoryLine:
    return StoryLine(
        at, entry.key, entry.members, entry.cause, entry.facts, entry.because, who=entry.who
    )
