"""The sandboxes that a keeper has removed last, and by which rule: read from its folder.

Turns the keeper's lines into a text for people. It is read only where a sandbox is missing. It
must not remove anything, nor fail: the lines are a courtesy.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from pathlib import Path

FILES = ("removed", "removed.before")
"""Beside the sandboxes; the older one last. Each line: run, rule, the rule's number, time."""
RULES = {
    "count": "of ended runs those of the newest {limit:.0f} are kept (keep_sandboxes)",
    "age": "those of ended runs are kept for {limit:g} s (keep_sandboxes_for)",
    "bytes": "those of ended runs may take {limit:.0f} MB, the oldest go (keep_sandboxes_mb)",
}


def why_removed(folder: Path, names: Collection[str]) -> str:
    """Why the sandbox of a run is not there, which may have any of these names; empty: unknown."""
    for file in FILES:
        try:
            lines = (folder / file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in reversed(lines):
            run, _, rest = line.partition("\t")
            if run in names:
                return _text(run, rest)
    return ""


def _text(run: str, rest: str) -> str:
    try:
        rule, limit, at = rest.split("\t")
        when = datetime.datetime.fromtimestamp(float(at), datetime.UTC)
        because = RULES[rule].format(limit=float(limit))
    except (ValueError, KeyError, OverflowError):
        return ""
    return f"the files of run {run} were removed at {when:%Y-%m-%d %H:%M:%SZ}: {because}"
