"""What may be asked of a shard as such, from wherever the asker is: lists, stories, changes.

Turns a query to `shard/<group>/<number>` into an answer that can travel: summaries as the values
of their kind, everything journaled as the rows of frames. It must not change the shard; the one
order among them, `Redrive`, is the shard's own affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from peloton.runtime.core.changes import PAGE_MAX, Change, Mark, Page
from peloton.runtime.core.codec import Codec, Entry
from peloton.runtime.core.listing import ListViews
from peloton.runtime.core.story import StoryLine
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Fact, Key, Message, Query, Unavailable, Value, key

if TYPE_CHECKING:
    from peloton.runtime.core.shard import Shard

SHARD_KIND = "shard"


def shard_key(shard: ShardId) -> Key:
    """How a shard itself is addressed."""
    return key(SHARD_KIND, shard.group, shard.number)


class ListDeadLetters(Query, frozen=True, gc=False, array_like=True):
    """What is set aside or in quarantine; answered by `InspectionRows`, one row for each fact."""


class ReadStory(Query, frozen=True, gc=False, array_like=True):
    """What an entity did lately and why; `member` is of a crowd, -1: all. Answered by
    `InspectionRows`.
    """

    of: Key
    member: int = -1


class ReadChanges(Query, frozen=True, gc=False, array_like=True):
    """What was written down after a mark; without one, the mark of now. Answered by
    `ChangesPage`.
    """

    mark: tuple[int, int] | None = None
    limit: int = PAGE_MAX


class FollowChanges(Query, frozen=True, gc=False, array_like=True):
    """Like `ReadChanges`, of some entities, and answered when there is something to tell.

    `names` are second parts of keys (`task/<name>/3`), `kinds` first parts; empty: any. A shard
    answers at once where it has such changes after the mark, or a gap, or was given no mark; else
    with the first frame that has some, or with an empty page after `followers.FOLLOW_S`.
    """

    mark: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    limit: int = PAGE_MAX

    def behind(self, mark: tuple[int, int]) -> FollowChanges:
        """The same question, from there on."""
        return msgspec.structs.replace(self, mark=mark)


class Redrive(Message, frozen=True, gc=False, array_like=True):
    """A person's order: try again what was set aside, and lift the quarantine."""

    of: Key


class InspectionRows(Value, frozen=True, gc=False, array_like=True):
    """Rows as a frame has them, each with its time."""

    rows: tuple[tuple[float, bytes], ...]


class ChangesPage(Value, frozen=True, gc=False, array_like=True):
    """A page of changes: rows with their (position, k)."""

    rows: tuple[tuple[int, int, float, bytes], ...]
    gap: bool
    mark: tuple[int, int]
    more: bool


class RedriveDone(Value, frozen=True, gc=False, array_like=True):
    """Answer to `Redrive`: it was done, and stands in the journal."""


QUERIES: dict[int, type] = {
    501: ListViews,
    502: ListDeadLetters,
    503: ReadStory,
    504: ReadChanges,
    505: FollowChanges,
}
SHARD_MESSAGES: dict[int, type] = {1: Redrive}
SHARD_ANSWERS: dict[int, type] = {501: InspectionRows, 502: ChangesPage, 503: RedriveDone}


def answer_inspection(shard: Shard, query: Message | Query) -> Any:
    """What the shard says to that; called between two turns."""
    if isinstance(query, ListViews):
        return shard.views.page(query)
    if isinstance(query, ListDeadLetters):
        held = shard.deferred.dump().items()
        facts = [(of, fact) for of, some in held for fact in some]
        return InspectionRows(
            tuple((0.0, shard.codec.encode_entry(Entry(of, (f,)))) for of, f in facts)
        )
    if isinstance(query, ReadStory):
        member = None if query.member < 0 else query.member
        lines = shard.turns.story.of(query.of, member)
        return InspectionRows(tuple((line.at, _row(shard.codec, line)) for line in lines))
    if isinstance(query, ReadChanges):
        return _read(shard, query)
    return Unavailable(f"a shard does not answer {type(query).__name__}")


def story_lines(codec: Codec, told: InspectionRows) -> list[StoryLine]:
    """The lines again, where they are read."""
    return [_line(codec.decode_entry(row), at) for at, row in told.rows]


def changes_of(codec: Codec, read: ChangesPage) -> list[Change]:
    """The changes again, where they are read."""
    return [
        Change(Mark(position, k), _line(codec.decode_entry(row), at))
        for position, k, at, row in read.rows
    ]


def facts_of(codec: Codec, told: InspectionRows) -> list[tuple[Key, Fact]]:
    """Pairs of who and what."""
    entries = [codec.decode_entry(row) for _, row in told.rows]
    return [(entry.key, fact) for entry in entries for fact in entry.facts]


def _read(shard: Shard, query: ReadChanges) -> ChangesPage:
    mark = Mark(*query.mark) if query.mark is not None else None
    return read_of(shard.codec, shard.changes.after(mark, min(query.limit, PAGE_MAX)))


def read_of(codec: Codec, page: Page, *, rows_of: dict[Mark, bytes] | None = None) -> ChangesPage:
    """A page as it travels. `rows_of` keeps the rows, for pages that have the same changes."""
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
