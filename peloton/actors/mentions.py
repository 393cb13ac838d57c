"""Mentions of jobs and pools in texts for people.

An actor does not know the reader of its texts, nor what the reader may see. So it writes a job or
pool as `<job ID>` or `<pool PATH>`, and the code that shows the text replaces each mention with
what the reader may see.
"""

from __future__ import annotations

import re
from collections.abc import Callable

JOB, POOL = "job", "pool"
ANOTHER = {JOB: "another job", POOL: "another pool"}
"""What a reader is told of those that are not for them to know."""
MENTION = re.compile(f"<({JOB}|{POOL}) ([^<>]*)>")
_ESCAPES: dict[int, str | int | None] = {ord(char): f"%{ord(char):02X}" for char in "%<>"}
"""What would end a mention. Nothing else is escaped: people read these texts in journals, too."""
_ESCAPED = re.compile("%(25|3C|3E)")


def job_mention(job_id: str) -> str:
    return _mention(JOB, job_id)


def pool_mention(path: str) -> str:
    return _mention(POOL, path)


def said(text: str, name: Callable[[str, str], str]) -> str:
    """Return the text with its mentions replaced: `name` takes the kind and what is mentioned."""
    return MENTION.sub(lambda found: name(found[1], _meant(found[2])), text)


def unnamed(text: str) -> str:
    """Return the text for a reader that may see none of the names."""
    return said(text, lambda kind, of: ANOTHER[kind])


def _mention(kind: str, of: str) -> str:
    return f"<{kind} {of.translate(_ESCAPES)}>"


def _meant(escaped: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped)
