"""Commands of `peloton map`: one per line, or a template over values, as GNU parallel has it.

Words and texts become a list of shell commands, without reading files.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence

VALUES, FILES = ":::", "::::"
_LINKED = (":::+", "::::+")
"""GNU parallel's words for lists that are read side by side."""
COMMANDS_MAX = 100_000
"""As many instances as a job is known to start and list well."""
PLACE = re.compile(r"\{(?:[./#]|/\.|//)?\}")
MEANING: dict[str, Callable[[str, int], str]] = {
    "{}": lambda value, number: shlex.quote(value),
    "{.}": lambda value, number: shlex.quote(os.path.splitext(value)[0]),
    "{/}": lambda value, number: shlex.quote(os.path.basename(value)),
    "{/.}": lambda value, number: shlex.quote(os.path.splitext(os.path.basename(value))[0]),
    "{//}": lambda value, number: shlex.quote(os.path.dirname(value) or "."),
    "{#}": lambda value, number: str(number),
}


class BadCommands(ValueError):
    """The words make no list of commands; the text says why."""


def commands_in(lines: Iterable[str]) -> list[str]:
    """Return one command per line; empty lines and comments are left out."""
    found = (line.strip() for line in lines)
    return checked([line for line in found if line and not line.startswith("#")])


def filled(template: Sequence[str], values: Iterable[str]) -> list[str]:
    """Return the template once for each value. Without a `{}` the value is its last word.

    A template of several words is joined with blanks, so that it can be typed without quotes.
    """
    text = " ".join(template)
    if not text.strip():
        raise BadCommands("the template is empty")
    if not PLACE.search(text):
        text += " {}"

    def one(value: str, number: int) -> str:
        return PLACE.sub(lambda place: MEANING[place[0]](value, number), text)

    return checked([one(value, number) for number, value in enumerate(values, start=1)])


def has_place(words: Sequence[str]) -> bool:
    """Return whether these words have a place for a value."""
    return any(PLACE.search(word) for word in words)


def checked(commands: list[str]) -> list[str]:
    """Return the commands. Raises BadCommands for none or too many, or for one that cannot be
    sent."""
    if not commands:
        raise BadCommands("there is no command")
    if len(commands) > COMMANDS_MAX:
        raise BadCommands(f"{len(commands)} commands; the limit is {COMMANDS_MAX}")
    for number, command in enumerate(commands, start=1):
        if "\0" in command:
            raise BadCommands(f"command {number} holds a NUL character")
    return commands


def parted(words: Sequence[str]) -> tuple[Sequence[str], str, Sequence[str]]:
    """Return template, separator (empty if there is none) and what stands behind it."""
    marks = [at for at, word in enumerate(words) if word in (VALUES, FILES, *_LINKED)]
    if not marks:
        return words, "", ()
    linked = next((words[at] for at in marks if words[at] in _LINKED), "")
    if linked:
        raise BadCommands(f"{linked} is not supported: one list of values is")
    if len(marks) > 1:
        raise BadCommands(f"only one {VALUES} or {FILES} is supported, found {len(marks)}")
    (at,) = marks
    return words[:at], words[at], words[at + 1 :]
