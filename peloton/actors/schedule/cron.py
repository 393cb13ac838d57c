"""The moments of a cron expression of five fields, in a time zone.

Turns text and a zone into the first moment after another, or the last up to it. Must not ask what
time it is, nor the machine for a zone.
Where clocks are set forward, a time of the day that is left out comes so much later; where they are
set back, one that comes twice counts once; unless the hour begins with `*`: then real time counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from typing import NamedTuple

DAYS_MAX = 9 * 366
"""How far to look: 29 February may be eight years away."""
DAY_S, HOUR_S, MINUTE_S = 86_400, 3600, 60
TEXT_LENGTH_MAX = 200
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
WEEKDAYS = "sun mon tue wed thu fri sat".split()
_PART = re.compile(r"(?:(\*)|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?")


Zones = Callable[[str], tzinfo]
"""The zone of a name; raises ValueError. A machine may know more of them than another."""


class CronField(NamedTuple):
    """One of the five fields: its name, its bounds, and names of its values from the least on."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()


FIELDS = (
    CronField("minute", 0, 59),
    CronField("hour", 0, 23),
    CronField("day of the month", 1, 31),
    CronField("month", 1, 12, tuple(MONTHS)),
    CronField("day of the week", 0, 7, tuple(WEEKDAYS)),
)


class Cron(NamedTuple):
    """A cron expression. `open_` has for each field whether it begins with `*`."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    open_: tuple[bool, ...]

    def has(self, day: date) -> bool:
        """Return whether the expression has moments on this day.

        If both kinds of days are given, either will do.
        """
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.open_[2] or self.open_[4]:
            return by_month and by_week
        return by_month or by_week


def parse_cron(text: str) -> Cron:
    """Return the expression of a text.

    Raises ValueError, naming the field.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise ValueError(f"{len(text)} characters, the limit is {TEXT_LENGTH_MAX}")
    words = MACROS.get(text.strip().lower(), text).lower().split()
    if len(words) != len(FIELDS):
        names = ", ".join(field.name for field in FIELDS)
        raise ValueError(f"{text!r} has not five fields ({names})")
    minutes, hours, days, months, weekdays = (
        _values(word, field) for word, field in zip(words, FIELDS, strict=True)
    )
    week = tuple(sorted({day % 7 for day in weekdays}))
    open_ = tuple(word.startswith("*") for word in words)
    return Cron(minutes, hours, days, months, week, open_)


def _values(word: str, field: CronField) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{field.name}: {part!r} is not *, N, N-M, */N or N-M/S")
        star, first, last, step = match.groups()
        low = field.least if star else _number(first, field)
        high = field.most if star else _number(last, field) if last else low
        if step and not (star or last):
            raise ValueError(f"{field.name}: {part!r}: a step needs a range")
        if low > high:
            raise ValueError(f"{field.name}: {part!r} goes backwards")
        if step and not int(step):
            raise ValueError(f"{field.name}: {part!r}: the step is 0")
        found |= dict.fromkeys(range(low, high + 1, int(step or 1)))
    return tuple(sorted(found))


def _number(text: str, field: CronField) -> int:
    if text in field.names:
        return field.names.index(text) + field.least
    if not text.isdigit() or not field.least <= int(text) <= field.most:
        raise ValueError(f"{field.name}: {text!r} is not from {field.least} to {field.most}")
    return int(text)


class Moments:
    """The moments of an expression in a zone, in seconds since the epoch."""

    def __init__(self, text: str, zone: tzinfo) -> None:
        self._cron = parse_cron(text)
        self._zone = zone

    def after(self, at: float) -> float | None:
        """Return the first moment after this; None if there is none for years."""
        day = datetime.fromtimestamp(at, self._zone).date() - timedelta(days=1)
        for _ in range(DAYS_MAX):
            if self._cron.has(day):
                for moment in self._of_day(day):
                    if moment > at:
                        return moment
            day += timedelta(days=1)
        return None

    def last(self, at: float) -> float | None:
        """Return the last moment up to this; None if there was none for years."""
        day = datetime.fromtimestamp(at, self._zone).date() + timedelta(days=1)
        for _ in range(DAYS_MAX):
            if self._cron.has(day):
                for moment in reversed(self._of_day(day)):
                    if moment <= at:
                        return moment
            day -= timedelta(days=1)
        return None

    def _of_day(self, day: date) -> list[float]:
        """Return all moments of one day, in order."""
        first = datetime(day.year, day.month, day.day, tzinfo=self._zone)
        begin, end = first.timestamp(), (first + timedelta(days=1)).timestamp()
        hours = self._cron.hours
        minutes = [minute * MINUTE_S for minute in self._cron.minutes]
        if end - begin == DAY_S:
            return [begin + hour * HOUR_S + minute for hour in hours for minute in minutes]
        found: dict[float, None] = {}
        for hour in hours:
            start = first.replace(hour=hour)
            if _is_steady(start):
                begin = start.timestamp()
                found |= dict.fromkeys(begin + minute for minute in minutes)
                continue
            for minute in self._cron.minutes:
                found |= dict.fromkeys(self._at(start.replace(minute=minute)))
        return sorted(found)

    def _at(self, wall: datetime) -> list[float]:
        """Return when a wall clock shows this: not always once, on a day on which it is set."""
        moments = [wall.timestamp(), wall.replace(fold=1).timestamp()]
        if not self._cron.open_[1]:
            return moments[:1]
        shown = wall.replace(tzinfo=None)
        return [
            moment
            for moment in moments
            if datetime.fromtimestamp(moment, self._zone).replace(tzinfo=None) == shown
        ]


def _is_steady(start: datetime) -> bool:
    """Return whether a wall clock shows this hour once, and whole: other hours cost much more."""
    offsets = {
        start.replace(minute=minute, fold=fold).utcoffset() for minute in (0, 59) for fold in (0, 1)
    }
    return len(offsets) == 1
