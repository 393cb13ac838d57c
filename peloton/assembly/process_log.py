"""The log of a long-lived process: stderr, which must never block or fail its writers.

Turns log events, and all else that is printed on `sys.stderr`, into lines that one thread writes.
The reader of stderr may be slow, stuck or gone: then lines are dropped and counted, and nobody
waits longer than `WAIT_S_MAX`. Control characters are logged as their escapes. A traceback is
logged without the values of local variables, which hold secrets of jobs.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, TextIO, cast

import structlog

from peloton.printable import escaped, escaped_lines

PENDING_BYTES_MAX = 256 * 1024
WAIT_S_MAX = 0.2
"""How long a writer waits for its line, so that lines are written in order with those on stdout."""
LEAVE_S_MAX = 1.0
TEXT_LENGTH_MAX = 16 * 1024
STDOUT = 1


@contextlib.contextmanager
def nonblocking_stderr() -> Iterator[StderrWriter]:
    """Replace `sys.stderr` by a writer that never blocks, and send structlog there."""
    plain = sys.stderr
    writer = StderrWriter(plain)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _as_text,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, writer)),
    )
    sys.stderr = writer
    try:
        yield writer
    finally:
        writer.drain(LEAVE_S_MAX)
        sys.stderr = plain


def log_line(line: str) -> None:
    """Print one line on stderr, which may be closed, or may never have been open."""
    if sys.stderr is None:  # `print` would take stdout instead
        return
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


class StderrWriter(io.TextIOBase):
    """A text stream for stderr; `stream` is the real one, or None without one."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._changed = threading.Condition()
        self._pending: deque[bytes] = deque()
        self._bytes = 0  # of the pending lines and of the one that is being written
        self._begun = ""  # a line without its end
        self._stuck = False
        self._thread: threading.Thread | None = None
        self.dropped = 0  # lines that are not reported yet
        self._path, self._others = _named(stream)

    def write(self, text: str) -> int:
        """Write a line, or drop it if too many wait; a text without an end waits for the rest."""
        if not isinstance(text, str):  # click finds out in this way what a stream takes
            raise TypeError(f"a text is needed, not {type(text).__name__}")
        with self._changed:
            self._begun += text
            whole, end, rest = self._begun.rpartition("\n")
            if end:
                self._begun = rest
                self._add(whole + end)
            elif len(rest) > TEXT_LENGTH_MAX:
                self._begun = ""
                self._add(rest)
        if end and not self._stuck:
            self._stuck = not self.drain(WAIT_S_MAX)
        return len(text)

    def reopen(self) -> None:
        """Reopen the file that stderr was at the start, which may have been moved. Raises OSError.

        After an error nothing has changed. A stream that is no file, or had no name, stays as it
        is.
        """
        if self._stream is None or not self._path:
            return
        ours = self._stream.fileno()
        mode, existed = stat.S_IMODE(os.fstat(ours).st_mode), os.path.exists(self._path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, mode)
        try:
            if not existed:
                os.fchmod(descriptor, mode)
            for each in (ours, *self._others):  # in one step: no line is lost between two files
                os.dup2(descriptor, each)
        finally:
            os.close(descriptor)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all is written, for so long at most; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._bytes, timeout_s)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        """Return whether a person reads the stream."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor, for child processes."""
        if self._stream is None:
            raise io.UnsupportedOperation("there is no stderr")
        return self._stream.fileno()

    def _add(self, text: str) -> None:
        data = escaped_lines(text).encode(self.encoding, self.errors)
        if self._bytes + len(data) > PENDING_BYTES_MAX:
            self.dropped += data.count(b"\n")
            return
        self._bytes += len(data)
        self._pending.append(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending)
                data, dropped = self._pending.popleft(), self.dropped
            notice = f"{dropped} lines of this log were dropped: stderr was full or closed\n"
            written = self._put(notice.encode() + data if dropped else data)
            with self._changed:
                if written:
                    self.dropped -= dropped
                else:
                    self.dropped += data.count(b"\n")
                self._bytes -= len(data)
                self._stuck = self._stuck and bool(self._pending)
                self._changed.notify_all()

    def _put(self, data: bytes) -> bool:
        """Write, however long it takes; return False if stderr is closed or its disk is full."""
        if self._stream is None:
            return False
        try:
            try:
                descriptor = self._stream.fileno()
            except io.UnsupportedOperation:  # replaced by a stream in memory
                self._stream.write(data.decode(self.encoding))
                self._stream.flush()
                return True
            # Not through the stream, whose lock Python needs at the exit of the process.
            while data:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:  # another process has made the pipe non-blocking
                    select.select([], [descriptor], [])
        except (OSError, ValueError):  # ValueError: the stream was closed by this process
            return False
        return True


def _named(stream: TextIO | None) -> tuple[str, tuple[int, ...]]:
    """Return the path of the file that a stream writes to, and other descriptors of output that do.

    Empty if it is none, or has no name any more.
    """
    try:
        descriptor = stream.fileno() if stream is not None else -1
        ours = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not stat.S_ISREG(ours.st_mode) or not os.path.samestat(ours, os.stat(path)):
            return "", ()
        also = descriptor != STDOUT and os.path.samestat(ours, os.fstat(STDOUT))
        return path, (STDOUT,) if also else ()
    except (OSError, ValueError):  # a stream in memory, or one that is closed
        return "", ()


def _as_text(*processed: Any) -> str:
    """Return an event as one line, and the lines of its traceback; structlog gives it last."""
    event = processed[-1]
    known = {key: event.pop(key, "") for key in ("timestamp", "level", "event", "exception")}
    values = "".join(f" {key}={value!r}" for key, value in event.items())
    line = escaped(f"{known['timestamp']} {known['level']} {known['event']}{values}")
    return line + ("\n" + known["exception"][-TEXT_LENGTH_MAX:] if known["exception"] else "")
