"""What a worker has to say: sent as soon as possible, and of a named executor kept in a file.

A file of answers outlives the worker, and its client, in the sandbox.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Collection, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

from peloton.sdk.executor import peers

CallAnswer = tuple[int, bool, bytes, Any]
"""The number of a call, whether it has a result, that or its exception, and what it has printed."""
FLUSH_MAX_S = 20.0
"""For the last messages of a worker."""


class AnswerFile:
    """The answers of one worker. Without a path there is no file, and nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._places: dict[int, int] = {}
        self._again: list[CallAnswer] = []
        self._lock = threading.RLock()

    def add(self, answer: CallAnswer) -> None:
        if self._path is None:
            return
        with self._lock:
            if self._file is None:
                self._file = self._path.open("ab+")
            self._places[answer[0]] = self._file.seek(0, 2)
            pickle.dump(answer, self._file, peers.PROTOCOL)
            self._file.flush()

    def again(self, wanted: Collection[int]) -> None:
        """Read the answers of these calls, which a new client does not have."""
        with self._lock:
            self._again = []
            for number in sorted(self._places.keys() & set(wanted)) if self._file else ():
                self._file.seek(self._places[number])  # type: ignore[union-attr]
                self._again.append(pickle.load(self._file))  # type: ignore[arg-type]

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the calls whose answers are there."""
        with self._lock:
            return list(self._places)

    def take_again(self) -> list[CallAnswer]:
        """Return the answers that are to be sent once more, once."""
        with self._lock:
            found, self._again = self._again, []
            return found


def read_answers(data: bytes) -> Iterator[CallAnswer]:
    """Yield the answers of a file, as far as it was written. It has to be of our own worker."""
    import io

    stream = io.BytesIO(data)
    while True:
        try:
            yield pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return


class WorkerOutbox:
    """The thread that writes, so that a call does not wait for the network."""

    def __init__(self, kept: AnswerFile) -> None:
        self._kept = kept
        self._changed = threading.Condition()
        self._answers: list[CallAnswer] = []
        self._busy_s = 0.0
        self._messages: list[tuple[Any, ...]] = []
        self._closing = False
        self._closed = False
        self.connection: Connection | None = None

    def answer(self, answer: CallAnswer, busy_s: float) -> None:
        """Send what came of a call that took so long."""
        self._kept.add(answer)
        with self._changed:
            self._answers.append(answer)
            self._busy_s += busy_s
            self._changed.notify()

    def put(self, *message: Any) -> None:
        """Send any other message."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify()

    def connected(self, connection: Connection) -> None:
        """Send there from now on."""
        again = self._kept.take_again()
        with self._changed:
            numbers = {answer[0] for answer in again}
            self._answers = again + [one for one in self._answers if one[0] not in numbers]
            self.connection = connection
            self._changed.notify()

    def disconnected(self) -> None:
        """Keep what there is to say until there is a connection again."""
        with self._changed:
            self.connection = None
            self._changed.notify()

    def close(self) -> None:
        """Send all that there is, and return then; after `FLUSH_MAX_S` at the latest."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed, FLUSH_MAX_S)

    def run(self) -> None:
        while self._send_some():
            pass

    def _send_some(self) -> bool:
        with self._changed:
            while not (self.connection and (self._answers or self._messages)):
                if self._closing and not (self._answers or self._messages):
                    self._closed = True
                    self._changed.notify_all()
                    return False
                self._changed.wait()
            connection = self.connection
            answers, self._answers = self._answers, []
            messages, self._messages = self._messages, []
            busy_s, self._busy_s = self._busy_s, 0.0
        try:
            if answers:
                peers.send(connection, "answers", busy_s, answers)
            for message in messages:
                peers.send(connection, *message)
        except peers.BROKEN:
            with self._changed:
                # The reader finds out, too. Of a file the next client gets what it wants.
                self.connection = None
                if self._closing:
                    self._closed = True
                    self._changed.notify_all()
                    return False
        return True
