"""What a text for people mentions: jobs and pools, in a form that readers find again.

An actor does not know who will read its texts, and who may know what. So it writes whom it means
as `<job ID>` or `<pool PATH>`, and whoever shows the text says it as the reader may see it. It must
not know who that is.
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
    """A job by its id."""
    return _mention(JOB, job_id)


def pool_mention(path: str) -> str:
    """A pool by its path."""
    return _mention(POOL, path)


def said(text: str, name: Callable[[str, str], str]) -> str:
    """The text with the mentions as `name` says them, of a kind and what they mention."""
    return MENTION.sub(lambda found: name(found[1], _meant(found[2])), text)


def unnamed(text: str) -> str:
    """The text for a reader of whom nothing is known."""
    return said(text, lambda kind, of: ANOTHER[kind])


def _mention(kind: str, of: str) -> str:
    return f"<{kind} {of.translate(_ESCAPES)}>"


def _meant(escaped: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped)
