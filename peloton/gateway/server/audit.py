"""The audit log: one line for each call that changes something, or tried to.

The ends of calls become lines of JSON in `audit.log`. A line is handed over before the answer
leaves, and written and synced by a thread of its own, in batches. So:

- the answer of a change is never ahead of its line in memory;
- a daemon that is killed loses the lines of its last moments (`GATHER_S`), though the changes are
  in the journal; a power cut, those of the last `SYNC_S` besides;
- if the disk is full, lines wait in memory, up to `WAITING_MAX`; later ones are counted as lost,
  which health and the next line that can be written say. Calls go on.

The log must hold no secret, as many may read it: of a request only ids and names, and no text that
may quote one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from peloton.gateway.access.guard import CallCode
from peloton.gateway.server.audit_file import FILE_BYTES_MAX, AuditFile
from peloton.gateway.server.calls import CallContext
from peloton.gateway.server.served_calls import ServedCall
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.core.principal import PART_LENGTH_MAX, Principal
from peloton.runtime.core.turning.supervision import Failure, attempt

AUDIT_LOG = "audit.log"
WAITING_MAX = 10_000
"""Lines in memory that are not written yet."""
GATHER_S = 0.005
SYNC_S = 1.0
RETRY_S = 1.0
CLOSE_S_MAX = 5.0
VALUE_LENGTH_MAX = 256
TEXT_LENGTH_MAX = 512
REFUSED_LINES_MAX = 20
"""In each `REFUSED_S`: callers who proved nothing must not push the lines of others out."""
REFUSED_S = 60.0
ANSWERS_BYTES_MAX = 16 * 1024 * 1024
"""Answers in memory that are not read yet; of one that finds no room the line says UNKNOWN."""
UNKNOWN = "UNKNOWN"
"""The outcome of a call whose answer was not read: it may hold an error."""
AUDIT = "audit"
OK = CallCode.OK.value[0]
_NAMES = {code.value[0]: code.name for code in CallCode}
QUOTING = frozenset({"INVALID_ARGUMENT", "invalidConfig", "invalidResourcePoolConfig"})
"""Answers whose texts may quote what a client sent."""

log = structlog.get_logger("gateway")


class AuditEntry(NamedTuple):
    """The end of one call: all from which the writing thread makes a line."""

    at_s: float
    principal: Principal
    method: str
    objects: Mapping[str, Any]
    hidden: bool
    code: int
    details: str
    answer: bytes | None
    reads: ReadAnswer | None


class ReadAnswer(NamedTuple):
    """How to find in the answer of a method what was made, and why it was refused."""

    parse: Callable[[bytes], Any]
    made: Callable[[Any], Mapping[str, Any]]


class AuditNote:
    """The note of one call, which hands its end over to the log."""

    __slots__ = ("_add", "_call", "_method", "_objects", "_reads", "_whose")

    def __init__(
        self,
        method: str,
        call: ServedCall,
        *,
        add: Callable[[AuditEntry], object],
        whose: Callable[[CallContext], Principal],
        reads: ReadAnswer | None,
    ) -> None:
        self._method, self._call = method, call
        self._add, self._whose, self._reads = add, whose, reads
        self._objects: Mapping[str, Any] = {}

    def found(self, objects: Mapping[str, Any]) -> None:
        """Record the objects that the parsed request names."""
        # A client may send megabytes as a name, and lines wait in memory.
        self._objects = cut(objects)

    def __call__(self, code: int, details: str, message: bytes | None) -> None:
        """Record the end of the call."""
        self._add(
            AuditEntry(
                time.time(),
                self._whose(CallContext(self._call)),
                self._method,
                self._objects,
                self._call.hidden,
                code,
                details,
                message,
                self._reads,
            )
        )


class AuditLog:
    """One audit log, from construction to `close`. Raises OSError if it cannot be opened."""

    def __init__(
        self,
        path: Path,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        waiting_max: int = WAITING_MAX,
        answers_bytes_max: int = ANSWERS_BYTES_MAX,
    ) -> None:
        self._file = AuditFile(path, file_bytes_max=file_bytes_max)
        self._waiting: deque[AuditEntry] = deque()
        self._waiting_max = waiting_max
        self._answers_bytes_max = answers_bytes_max
        self._answers_bytes = 0  # of the answers of what waits
        self._lost = 0
        self._lost_said = 0  # of these, in a line that was written
        self._refused = 0  # lines of refused callers since `_refused_since_s`
        self._refused_since_s = -REFUSED_S
        self._left_out = 0  # of these, those that no line tells of
        self._ended = False
        self._fault = ""  # of the last try to write
        self._lock = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gateway-audit", daemon=True)
        self._thread.start()

    def add(self, entry: AuditEntry) -> None:
        """Hand over a line; from any thread, and without waiting for the disk."""
        with self._lock:
            if self._ended:
                late = _line_or_less(entry).decode()
                log.error("an audit line came after the end of its log", line=late)
                return
            if len(self._waiting) >= self._waiting_max:
                self._lost += 1
                return
            if self._answers_bytes + _answer_bytes(entry) > self._answers_bytes_max:
                entry = entry._replace(answer=None)
            self._answers_bytes += _answer_bytes(entry)
            self._waiting.append(entry)
        if not self._wake.is_set():
            self._wake.set()

    def add_refused(self, entry: AuditEntry) -> None:
        """Hand over a line of a caller without proof; beyond a limit such lines are only
        counted."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._refused_since_s >= REFUSED_S:
                self._refused, self._refused_since_s = 0, now_s
            self._refused += 1
            if self._refused > REFUSED_LINES_MAX:
                self._left_out += 1
                if self._left_out == 1:
                    self._wake.set()  # to wait for the time of their line
                return
        self.add(entry)

    def notes(self) -> tuple[NotReadyReason, ...]:
        """Return what health says; it is no reason against being ready."""
        texts = []
        if self._fault:
            waiting = len(self._waiting)
            texts.append(f"{self._file.path} cannot be written: {self._fault}; {waiting} wait")
        if self._lost:
            texts.append(f"{self._lost} lines are lost")
        return (NotReadyReason(AUDIT, "; ".join(texts)),) if texts else ()

    def close(self) -> None:
        """Write and sync what was handed over."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_S_MAX)

    # ---- the thread that writes ----

    def _run(self) -> None:
        synced_s, dirty = 0.0, False
        while True:
            self._wake.wait(SYNC_S if dirty else REFUSED_S if self._left_out else None)
            self._closing.wait(GATHER_S)  # one write for all that come now
            self._wake.clear()
            closing = self._closing.is_set()  # what is set from here on wakes us again
            wrote = self._write(closing=closing)
            dirty = dirty or wrote
            if dirty and (closing or time.monotonic() - synced_s >= SYNC_S):
                synced_s, dirty = time.monotonic(), not self._attempt(self._file.sync)
            if closing and self._end():
                return
            if self._fault:
                self._closing.wait(RETRY_S)
                self._wake.set()

    def _end(self) -> bool:
        """Take no more lines; return False if some have come that can still be written."""
        with self._lock:
            if self._waiting and not self._fault:
                self._wake.set()
                return False
            self._ended = True
        if self._waiting:
            log.error("audit lines were not written", count=len(self._waiting))
        self._file.close()
        return True

    def _write(self, *, closing: bool) -> bool:
        """Write what waits; return whether anything was written."""
        with self._lock:
            batch, lost = [*self._waiting], self._lost - self._lost_said
            over = closing or time.monotonic() - self._refused_since_s >= REFUSED_S
            left_out = self._left_out if over else 0
        if not batch and not lost and not left_out:
            return False
        lines = [_line_or_less(entry) for entry in batch]
        at = _time_text(time.time())
        if lost:
            lines.append(_encoded({"at": at, "lost": lost, "text": "lines that found no room"}))
        if left_out:
            text = "refused calls of callers who did not prove who they are"
            lines.append(_encoded({"at": at, "left_out": left_out, "text": text}))
        if not self._attempt(lambda: self._file.write(b"".join(lines))):
            return False
        with self._lock:
            for _ in batch:
                self._answers_bytes -= _answer_bytes(self._waiting.popleft())
            self._left_out -= left_out
        self._lost_said += lost
        return True

    def _attempt(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except OSError as error:
            fault = error.strerror or str(error)
            if fault != self._fault:
                log.error("the audit log cannot be written", error=fault)
            self._fault = fault
            return False
        if self._fault:
            log.info("the audit log is written again", lost=self._lost)
        self._fault = ""
        return True


def cut(objects: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the objects with the first part of each text."""
    return {
        name: value[:VALUE_LENGTH_MAX] if isinstance(value, str) else value
        for name, value in objects.items()
    }


def _answer_bytes(entry: AuditEntry) -> int:
    return 0 if entry.answer is None else len(entry.answer)


def _line_of(entry: AuditEntry) -> bytes:
    who = entry.principal
    objects = dict(entry.objects)
    name, error, text = _NAMES.get(entry.code, str(entry.code)), "", entry.details
    if entry.answer is not None and entry.reads is not None:
        answer = entry.reads.parse(entry.answer)
        objects.update(cut(entry.reads.made(answer)))
        error, text = _error_of(answer)
        name = "REFUSED" if error else name
    elif entry.reads is not None and entry.code == OK:
        name = UNKNOWN
    if name in QUOTING or error in QUOTING:
        text = ""
    line = {
        "at": _time_text(entry.at_s),
        "who": who.name[:PART_LENGTH_MAX],
        "how": who.how,
        "role": who.role,
        "peer": who.peer,
        "caller": who.caller[:PART_LENGTH_MAX],
        "method": entry.method,
        "objects": {key: value for key, value in objects.items() if value != ""},
        "answer": name,
        "error": error,
        "text": text[:TEXT_LENGTH_MAX],
        "hidden": entry.hidden,
    }
    always = ("at", "who", "how", "method", "objects", "answer")
    return _encoded({key: value for key, value in line.items() if value or key in always})


def _line_or_less(entry: AuditEntry) -> bytes:
    """Return the line.

    If a bug prevents it, all that needs no reading of the answer, or at least nothing of the
    request either.
    """
    for part in (entry, entry._replace(answer=None)):
        line = attempt(_line_of, part)
        if not isinstance(line, Failure):
            return line
        log.error("an audit line is short", method=entry.method, error=str(line.error))
    return _line_of(entry._replace(answer=None, objects={}))


def _error_of(answer: Any) -> tuple[str, str]:
    """Return field and text of the error inside an OK answer, as the calls of v0 have it.

    Some have one for each task; the first of them is told.
    """
    known = answer.DESCRIPTOR.fields_by_name.get("error")
    if known is None or (known.has_presence and not answer.HasField("error")):
        return "", ""
    for error in answer.error if not known.has_presence else (answer.error,):
        for field, value in error.ListFields():
            return str(field.name), str(getattr(value, "message", ""))
        return "error", ""
    return "", ""


def _encoded(line: Mapping[str, Any]) -> bytes:
    # What is no JSON is written as Python shows it: a line must not end the thread of all lines.
    return json.dumps(line, separators=(",", ":"), default=repr).encode() + b"\n"


def _time_text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds")[:-6] + "Z"
