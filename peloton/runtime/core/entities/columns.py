"""Columns of a crowd: values that differ from member to member, such as the host.

Stores one reference per member, or one for all while they are equal. No decision may read a column:
members of one class would no longer be decided as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peloton.runtime.vocabulary import members_of


class Columns:
    """Values by column and member; a column that was never written reads as None."""

    __slots__ = ("_each", "_same", "present")

    def __init__(self) -> None:
        self._same: dict[str, Any] = {}
        self._each: dict[str, list[Any]] = {}
        self.present = 0  # members that exist; a write that covers them all stays one reference

    def add(self, raw: int) -> None:
        """Add the members in `raw`, with None in every column."""
        if not self.present:
            self._same, self._each = {}, {}
        self.present |= raw
        newcomers = members_of(raw)
        for name in [*self._same, *self._each]:
            if name in self._same and self._same[name] is None:
                continue
            column = self._spread(name, raw)
            for member in newcomers:
                column[member] = None

    def remove(self, raw: int) -> None:
        self.present &= ~raw

    def write(self, name: str, raw: int, *, value: Any) -> None:
        """Give all members in `raw` the same value."""
        if raw & self.present == self.present:
            self._each.pop(name, None)
            self._same[name] = value
            return
        column = self._each.get(name)
        if column is None and self._same.get(name) == value and name in self._same:
            return
        column = self._spread(name, raw)
        for member in members_of(raw):
            column[member] = value

    def write_each(self, name: str, raw: int, *, values: Sequence[Any]) -> None:
        """Give each member in `raw`, ascending, its own value."""
        if len(values) == 1:
            self.write(name, raw, value=values[0])
            return
        column = self._spread(name, raw)
        for member, value in zip(members_of(raw), values, strict=True):
            column[member] = value

    def read(self, name: str, member: int) -> Any:
        """Return the value of one member."""
        column = self._each.get(name)
        if column is None:
            return self._same.get(name)
        return column[member] if member < len(column) else None

    def values(self, name: str, raw: int) -> list[Any]:
        """Return the values of the members in `raw`, ascending."""
        column = self._each.get(name)
        if column is None:
            return [self._same.get(name)] * raw.bit_count()
        size = len(column)
        return [column[member] if member < size else None for member in members_of(raw)]

    def groups(self, name: str, raw: int) -> list[tuple[Any, int]]:
        """Group the members of `raw` by value: pairs (value, members), by lowest member."""
        column = self._each.get(name)
        if column is None:
            return [(self._same.get(name), raw)] if raw else []
        found: dict[Any, int] = {}
        for member in members_of(raw):
            value = column[member] if member < len(column) else None
            found[value] = found.get(value, 0) | 1 << member
        return list(found.items())

    def copy(self) -> Columns:
        """Return an independent copy, for a checkpoint or a reader on another thread."""
        twin = Columns()
        twin._same = dict(self._same)
        twin._each = {name: list(column) for name, column in self._each.items()}
        twin.present = self.present
        return twin

    def dump(self) -> tuple[Mapping[str, Any], Mapping[str, list[Any]], int]:
        """Return common values, values per member, and existing members, to be encoded."""
        return self._same, self._each, self.present

    @classmethod
    def load(
        cls, same: Mapping[str, Any], each: Mapping[str, list[Any]], *, present: int
    ) -> Columns:
        """The inverse of `dump`."""
        columns = cls()
        columns._same, columns._each, columns.present = dict(same), dict(each), present
        return columns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Columns):
            return NotImplemented
        names = sorted({*self._same, *self._each, *other._same, *other._each})
        members = members_of(self.present | other.present)
        return self.present == other.present and all(
            self.read(name, at) == other.read(name, at) for name in names for at in members
        )

    __hash__ = None  # type: ignore[assignment]

    def _spread(self, name: str, raw: int) -> list[Any]:
        column = self._each.get(name)
        size = max(self.present.bit_length(), raw.bit_length())
        if column is None:
            column = self._each[name] = [self._same.pop(name, None)] * size
        elif len(column) < size:
            column.extend([None] * (size - len(column)))
        return column
