"""A run of entities of one kind in the order of their ranks: summaries, and what is made of them.

Turns summaries into columns of one field each, and texts into one long text. A query of many
thousand summaries mostly waits for memory: a column is read in one go, and equal values in it are
one object. Both are made when a query needs them first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, TypeAlias

from peloton.runtime.vocabulary import Key

SEPARATOR = "\0"
"""Between two texts; no word that is looked for has it."""
_JOINED = ""  # no field has this name

RankKey: TypeAlias = tuple[float, Key]
Texts: TypeAlias = tuple[str, ...]


class Block:
    """Some entities: `ranks` ascending, and the summary and the texts of each.

    A block is changed by one thread and may be read by others, which find out afterwards that it
    has changed meanwhile (`Views.read`). What such a reader derived from data half changed must not
    stay: a change begins and ends with another dict for derived values.
    """

    __slots__ = ("_made", "ranks", "summaries", "texts")

    def __init__(self, ranks: list[RankKey], summaries: list[Any], *, texts: list[Texts]) -> None:
        self.ranks, self.summaries, self.texts = ranks, summaries, texts
        self._made: dict[str, Any] = {}  # columns by field, and all texts as one

    def __len__(self) -> int:
        return len(self.ranks)

    def put(self, rank: RankKey, summary: Any, *, texts: Texts) -> None:
        """Set summary and texts of the entity of this rank."""
        at = bisect_left(self.ranks, rank)
        is_new = at == len(self.ranks) or self.ranks[at] != rank
        made = self._begin(new_texts=is_new or texts != self.texts[at])
        if is_new:
            self.ranks.insert(at, rank)
            self.summaries.insert(at, summary)
            self.texts.insert(at, texts)
        else:
            self.summaries[at], self.texts[at] = summary, texts
        for field, column in made.items():
            if field != _JOINED:
                column[at : at if is_new else at + 1] = [getattr(summary, field)]
        self._made = made

    def remove(self, rank: RankKey) -> None:
        """Remove the entity of this rank."""
        at = bisect_left(self.ranks, rank)
        made = self._begin(new_texts=True)
        of_each: list[list[Any]] = [self.ranks, self.summaries, self.texts, *made.values()]
        for values in of_each:
            del values[at]
        self._made = made

    def parts(self, size: int) -> Iterator[Block]:
        for at in range(0, len(self), size):
            end = at + size
            texts = self.texts[at:end]
            yield Block(self.ranks[at:end], self.summaries[at:end], texts=texts)

    def column(self, field: str) -> Sequence[Any]:
        """Return the value of a field in each summary."""
        made = self._made
        found: list[Any] | None = made.get(field)
        if found is None:
            kept: dict[Any, Any] = {}
            values = map(attrgetter(field), self.summaries)
            found = made[field] = [kept.setdefault(value, value) for value in values]
        return found

    @property
    def chars(self) -> int:
        """How many characters a search of the texts examines."""
        return len(self._join().text)

    def having(self, word: str) -> dict[int, None]:
        """Return the places of the entities that have a text in which the word occurs."""
        return self._join().having(word)

    def _begin(self, *, new_texts: bool) -> dict[str, Any]:
        """Begin a change: return the derived values that are to be kept up with it."""
        made, self._made = self._made, {}
        kept = dict(made)
        if new_texts:
            kept.pop(_JOINED, None)
        return kept

    def _join(self) -> _Joined:
        made = self._made
        found: _Joined | None = made.get(_JOINED)
        if found is None:
            found = made[_JOINED] = _Joined(self.texts)
        return found


class _Joined:
    """All texts of a block as one; a text that several entities share is in it once."""

    __slots__ = ("_of", "_starts", "text")

    def __init__(self, texts: Sequence[Texts]) -> None:
        of: dict[str, list[int]] = {}
        for at, some in enumerate(texts):
            for text in some:
                of.setdefault(text, []).append(at)
        self._of = [*of.values()]
        self._starts = [0, *accumulate(len(text) + len(SEPARATOR) for text in of)]
        self.text = SEPARATOR.join(of)

    def having(self, word: str) -> dict[int, None]:
        found: dict[int, None] = {}
        at = self.text.find(word) if SEPARATOR not in word else -1
        while at >= 0:
            number = bisect_right(self._starts, at) - 1
            if number >= len(self._of):
                break
            found.update(dict.fromkeys(self._of[number]))
            at = self.text.find(word, self._starts[number + 1])
        return found
