"""What the instances of one service have noted: when each began, and when it was told to end.

Their script writes a line for each, `up` or `down`, with the instance, the word of its config, and
the time. It must not ask the cluster anything.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TICKS = str(os.sysconf("SC_CLK_TCK"))
SAY = """
say() { echo "$1 $PELOTON_INSTANCE_ID $WORD $2" >> NOTES; }
"""
BEGUN = "say up $(awk '{ printf \"%.2f\", $22 / TICKS }' /proc/$$/stat)"
"""It is up from when its process began, whenever it gets to say so; in seconds since the machine's
start. To the tick: `print` has six digits, which three hours after that are tenths of a second."""
TOLD = "read now rest < /proc/uptime; say down $now"


class Moment(NamedTuple):
    """What is up once something has happened, by instance with the word of its config."""

    at: float
    up: dict[int, str]
    all_ran: bool  # whether all have run at once by now


class ServiceNotes:
    """The notes of a service of so many instances, in a file."""

    def __init__(self, file: Path, instances: int) -> None:
        self.file, self.instances = file, instances

    def script(self, text: str) -> str:
        """A script with the file of the notes in it."""
        return text.replace("NOTES", str(self.file)).replace("TICKS", TICKS)

    def lines(self) -> Iterator[tuple[str, int, str, float]]:
        """What happened, to which instance, with which config, and when."""
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            what, instance, word, at = line.split()
            yield what, int(instance), word, float(at)

    def began(self, word: str) -> Counter[int]:
        """How often each instance began by this config."""
        return Counter(each[1] for each in self.lines() if each[0] == "up" and each[2] == word)

    def moments(self) -> Iterator[Moment]:
        """What was up after each line, in the order of time."""
        up: dict[int, str] = {}
        all_ran = False
        # Of one tick, who began comes first: only then was another told to end.
        for what, instance, word, at in sorted(
            self.lines(), key=lambda each: (each[3], each[0] != "up")
        ):
            if what == "up":
                up[instance] = word
            else:
                up.pop(instance, None)
            all_ran = all_ran or len(up) == self.instances
            yield Moment(at, dict(up), all_ran)
