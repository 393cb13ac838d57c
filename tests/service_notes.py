"""What the instances of one service have noted: when each began, and when it was told to end.

Their script writes a line for each, `up` or `down`, with the instance, the word of its config, and
the time. Only the lines of one instance have an order, that in which they were written; those of
different instances have their times, which are whole ticks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TICKS_A_S = os.sysconf("SC_CLK_TCK")
SAY = """
say() { echo "$1 $PELOTON_INSTANCE_ID $WORD $2" >> NOTES; }
"""
BEGUN = "say up $(awk '{ printf \"%.2f\", $22 / TICKS }' /proc/$$/stat)"
"""It is up from when its process began, whenever it gets to say so; in seconds since the machine's
start. To the tick: `print` has six digits, which three hours after that are tenths of a second."""
TOLD = "read now rest < /proc/uptime; say down $now"


class Note(NamedTuple):
    """One line."""

    what: str
    instance: int
    word: str
    tick: int


class Down(NamedTuple):
    """An instance that was down in all of these ticks."""

    instance: int
    first: int
    last: int


class ServiceNotes:
    """The notes of a service of so many instances, in a file."""

    def __init__(self, file: Path, instances: int) -> None:
        self.file, self.instances = file, instances

    def script(self, text: str) -> str:
        """A script with the file of the notes in it."""
        return text.replace("NOTES", str(self.file)).replace("TICKS", str(TICKS_A_S))

    def notes(self) -> Iterator[Note]:
        """In the order in which they were written."""
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            what, instance, word, at = line.split()
            yield Note(what, int(instance), word, round(float(at) * TICKS_A_S))

    def began(self, word: str) -> Counter[int]:
        """How often each instance began by this config."""
        return Counter(
            note.instance for note in self.notes() if note.what == "up" and note.word == word
        )

    def up(self) -> dict[int, str]:
        """The instances that have not been told to end since they began, with their words."""
        last = {note.instance: note for note in self.notes()}
        return {at: note.word for at, note in last.items() if note.what == "up"}

    def downs(self) -> Iterator[Down]:
        """When an instance was surely down: after the tick in which it was told to end, before that
        in which its next run began. What lies within one tick is in no known order."""
        before: dict[int, Note] = {}
        for note in self.notes():
            last = before.get(note.instance)
            if last is not None and (last.what, note.what) == ("down", "up"):
                yield Down(note.instance, last.tick + 1, note.tick - 1)
            before[note.instance] = note

    def most_down(self) -> set[int]:
        """The most instances that were surely down at once, since all of them had begun."""
        first_up: dict[int, int] = {}
        for note in self.notes():
            if note.what == "up":
                first_up.setdefault(note.instance, note.tick)
        if len(first_up) < self.instances:
            return set()
        all_begun = max(first_up.values())
        downs = [one for one in self.downs() if all_begun < one.first <= one.last]
        at_once = (
            {one.instance for one in downs if one.first <= moment.first <= one.last}
            for moment in downs
        )
        return max(at_once, key=len, default=set())
