"""Messages of the master that could not be read: they are skipped, and named.

One message of unknown form must not end the stream again and again for all hosts. An agent whose
entry cannot be read stays as it was; an update that was skipped comes again, as it is not
acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peloton.backends.mesos.runs.readiness import CHECK_RESULTS

FRESH_S = 600.0
"""For how long an event that was skipped is named."""
TEXT_MAX = 300
_TEXTS = ("state", "source", "reason", "message", "uuid", "data")
_IDS = ("agent_id", "executor_id")
_NUMBERS_END = 2**63
"""No number is kept that is as large, or not finite."""


class Unreadable:
    """The count of all that was skipped, and its names."""

    def __init__(self) -> None:
        self.count = 0
        self._event, self._until = "", float("-inf")
        self._entries: tuple[str, ...] = ()

    def skip(self, what: str, why: Exception, now: float) -> None:
        """Skip an event, or a part of one."""
        self.count += 1
        self._event, self._until = unread(what, why), now + FRESH_S

    def listed(self, entries: Sequence[str]) -> None:
        """Note these entries of the last list, which could not be read."""
        self.count += len(entries)
        self._entries = tuple(entries)

    def problem(self, now: float) -> str:
        """Return the present problem; empty if there is none."""
        parts = [*self._entries[:1]]
        if len(self._entries) > 1:
            parts[0] += f" (and {len(self._entries) - 1} more in the list)"
        if now < self._until:
            parts.append(self._event)
        if not parts:
            return ""
        return f"the master says what we cannot read, and which is skipped: {'; '.join(parts)}"


def unread(what: str, why: Exception) -> str:
    """Return the text for one thing that could not be read."""
    return f"{what}: {type(why).__name__}: {why}"[:TEXT_MAX]


def kept_text(of: Mapping[str, Any], name: str) -> str:
    """Return a required text that facts will keep. Raises one of `POISON`."""
    found = of[name]
    if not isinstance(found, str):
        raise TypeError(f"{name} is no text: {found!r}")
    found.encode()  # half a pair of surrogates cannot be written
    return found


def kept_number(of: Mapping[str, Any], name: str) -> float:
    """Return a required number that is kept, as `kept_text` does."""
    found = of[name]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{name} is no number: {found!r}")
    if not abs(found) < _NUMBERS_END:
        raise ValueError(f"{name} is out of range: {found!r}")
    return found


def check_update(status: Mapping[str, Any]) -> None:
    """Check the types of an update's fields, where they are there. Raises one of `POISON`.

    It has to be called before anything changes.
    """
    kept_text(status["task_id"], "value")
    for name in _IDS:
        if status.get(name):
            kept_text(status[name], "value")
    for name in _TEXTS:
        if name in status:
            kept_text(status, name)
    if status.get("timestamp") is not None:
        kept_number(status, "timestamp")
    healthy = status.get("healthy")
    if healthy is not None and not isinstance(healthy, bool):
        raise TypeError(f"healthy is neither true nor false: {healthy!r}")
    if status.get("check_status") is not None:
        _check_result(status["check_status"])


def _check_result(told: Mapping[str, Any]) -> None:
    kind = told["type"]
    if not isinstance(kind, str):
        raise TypeError(f"type of a check is no text: {kind!r}")
    if kind in CHECK_RESULTS:
        inner, name = CHECK_RESULTS[kind]
        code = (told.get(inner) or {}).get(name)
        if code is not None and not isinstance(kept_number(told[inner], name), int):
            raise TypeError(f"{name} is no whole number: {code!r}")
