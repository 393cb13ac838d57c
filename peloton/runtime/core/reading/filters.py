"""Filters of listings: which summaries match a query.

Turns tests of fields into functions that judge many values at once, because a query may examine a
hundred thousand: most of the work is done by loops that are not Python's own. A test names fields
of the summaries of a kind.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from peloton.runtime.core.principal import creator_in
from peloton.runtime.core.reading.blocks import Block
from peloton.runtime.vocabulary import Value

AMONG, BETWEEN, PART, PAIR = "among", "between", "part", "pair"
BELOW, CREATOR, TEXT = "below", "creator", "text"
COMPILED_MAX, ANSWERS_MAX = 64, 4096
"""Queries whose filters are kept for their next page, and paths or principals of each."""

Judge: TypeAlias = Callable[[Iterable[Any]], Iterable[bool]]
FieldReader: TypeAlias = Callable[[str], Iterable[Any]]
"""The values of a field of all that is judged."""


class Where(Value, frozen=True, gc=False, array_like=True):
    """A test of one field of a summary.

    among: one of `words` or `numbers`. between: from the first to the second of `numbers`, both
    included. part: the field contains the first of `words`. pair: among its pairs is that of
    `words`; an empty first word stands for any. below: of the paths in `words`, each with + or -
    before it, the nearest at or above its own has a +. creator: the field is the journaled
    principal of somebody who has proved to be the first of `words`. text: all of `words`, which are
    in small letters, are found in the texts that the kind gives to search; this rule has no field
    and no `others`.

    A summary matches as well if it passes one of `others`.
    """

    field: str
    rule: str
    words: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    others: tuple[Where, ...] = ()


class FieldTest(NamedTuple):
    """A `Where` as functions."""

    field: str
    judge: Judge
    others: tuple[FieldTest, ...] = ()

    def verdicts(self, columns: FieldReader) -> Iterable[bool]:
        """Return whether each entity passes."""
        own = self.judge(columns(self.field))
        if not self.others:
            return own
        return map(any, zip(own, *(one.verdicts(columns) for one in self.others), strict=True))


class Filter(NamedTuple):
    """All tests of a query. `words` are looked for in texts."""

    tests: tuple[FieldTest, ...]
    words: tuple[Word, ...]

    def positions(self, block: Block, some: range) -> Sequence[int]:
        """Return the positions of those that match, of some entities of a block."""
        found: Sequence[int] = some
        for test in self.tests:
            found = [*compress(found, test.verdicts(_columns(block, found)))]
        for word in self.words:
            if found:
                found = word.among(block, found)
        return found


class Word(NamedTuple):
    """A word to look for: as a part of a text, or in one of its words as a pattern.

    `piece` is the literal part that each matching text must have.
    """

    piece: str
    pattern: re.Pattern[str] | None = None

    def among(self, block: Block, positions: Sequence[int]) -> list[int]:
        """Return the positions whose texts have the word."""
        having = block.having(self.piece)
        found = [at for at in positions if at in having]
        if self.pattern is not None and found:
            matching = functools.cache(self._matches)  # many have the same text
            found = [at for at in found if any(map(matching, block.texts[at]))]
        return found

    def is_in(self, text: str) -> bool:
        return self.piece in text and (self.pattern is None or self._matches(text))

    def _matches(self, text: str) -> bool:
        assert self.pattern is not None
        return any(map(self.pattern.match, _words_with(self.piece, text)))


@functools.lru_cache(COMPILED_MAX)
def filter_of(tests: tuple[Where, ...]) -> Filter:
    """Compile the tests into functions. Raises for a test that makes no sense.

    The query then gets an error instead of a partial list.
    """
    words = [word for test in tests if test.rule == TEXT for word in test.words]
    return Filter(
        tuple(_field_test(test) for test in tests if test.rule != TEXT),
        tuple(_word(word) for word in words),
    )


def passing(tests: tuple[Where, ...], summaries: Iterable[Any]) -> list[Any]:
    """Return the summaries that pass all tests. Texts cannot be judged by them."""
    found = [*summaries]
    made = filter_of(tests)
    if made.words:
        raise ValueError("no texts are kept in this order")
    for test in made.tests:
        found = [*compress(found, test.verdicts(_fields(found)))]
    return found


def texts_pass(tests: tuple[Where, ...], texts: tuple[str, ...]) -> bool:
    """Return whether one entity's texts have all words that are looked for."""
    return all(any(map(word.is_in, texts)) for word in filter_of(tests).words)


def nearest(path: str, found: Callable[[str], Any]) -> Any:
    """Return what `found` has for a path, or for the nearest one above it; else None."""
    path = path or "/"
    while True:
        value = found(path)
        if value is not None or path == "/":
            return value
        path = path.rpartition("/")[0] or "/"


def _columns(block: Block, positions: Sequence[int]) -> FieldReader:
    if isinstance(positions, range):
        return lambda field: block.column(field)[positions.start : positions.stop]

    def chosen(field: str) -> Iterable[Any]:
        column = block.column(field)
        return [column[at] for at in positions]

    return chosen


def _fields(summaries: Sequence[Any]) -> FieldReader:
    return lambda field: map(attrgetter(field), summaries)


def _field_test(test: Where) -> FieldTest:
    return FieldTest(test.field, _rule(test), tuple(map(_field_test, test.others)))


def _rule(test: Where) -> Judge:
    if test.rule == AMONG:
        among = frozenset(test.words) | frozenset(test.numbers)
        return lambda values: map(among.__contains__, values)
    if test.rule == BETWEEN:
        low, high = test.numbers
        return lambda values: [low <= value <= high for value in values]
    if test.rule == PART:
        (part,) = test.words
        return lambda values: [part in value for value in values]
    if test.rule == PAIR:
        name, wanted = test.words
        if name:
            return lambda values: [(name, wanted) in value for value in values]
        return lambda values: [any(wanted == one for _, one in value) for value in values]
    if test.rule == BELOW:
        signs = {word[1:]: word[0] == "+" for word in test.words}
        return _kept(lambda path: bool(nearest(path, signs.get)))
    if test.rule == CREATOR:
        (name,) = test.words
        return _kept(lambda text: bool(name) and creator_in(text) == name)
    raise ValueError(f"no rule {test.rule} to choose summaries by")


def _kept(judge: Callable[[str], bool]) -> Judge:
    """Cache a judge's answers: many summaries have the same value."""
    kept = functools.lru_cache(ANSWERS_MAX)(judge)
    return lambda values: map(kept, values)


# ---- texts ----


def _word(text: str) -> Word:
    if "*" not in text and "?" not in text:
        return Word(text)
    # Few texts have the longest piece, and in those only few words.
    piece = max(re.split(r"[*?]", text), key=len)
    return Word(piece, re.compile(fnmatch.translate(text.replace("[", "[[]"))))


def _words_with(piece: str, text: str) -> Iterable[str]:
    if not piece:
        yield from text.split()
        return
    at = text.find(piece)
    while at >= 0:
        start = max(text.rfind(" ", 0, at), text.rfind("\n", 0, at)) + 1
        stop = _end_of_word(text, at + len(piece))
        yield text[start:stop]
        at = text.find(piece, stop)


def _end_of_word(text: str, at: int) -> int:
    ends = [end for end in (text.find(" ", at), text.find("\n", at)) if end >= 0]
    return min(ends, default=len(text))
