"""Texts of strangers as one can print them: control characters are shown, not obeyed.

Turns characters that steer a terminal, break a line or reverse its direction into their escapes.
For people only: what programs read (JSON, YAML, files, the wire) stays exact. Pure.
"""

from __future__ import annotations

SAID_MAX = 4_000
"""Characters of one message."""


def escaped(text: str) -> str:
    """One line that looks as it is: each character that is not printable as its escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def shortened(text: str, most: int = SAID_MAX) -> str:
    """A text, or the beginning and the end of a long one: it may repeat a whole file."""
    half = most // 2
    left_out = len(text) - 2 * half
    if left_out <= 0:
        return text
    return f"{text[:half]} ({left_out} characters left out) {text[-half:]}"


def escaped_lines(text: str) -> str:
    """The same for texts of several lines, which keep their line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
