"""One end of a stream of frames: what waits to be sent, and whom to tell what came.

Turns frames into messages for the thread that sends, and what other threads heard into calls of
the ears. It must not know what carries the messages, nor make anybody wait: frames that nobody
takes away are bounded, and beyond the bound the stream ends.

All of it holds one lock, also while the ears are told: a stream that was closed meanwhile could
tell them one thing more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from peloton.runtime.core.parcels import LINK_BYTES_MAX, STREAM_FRAME_BYTES_MAX
from peloton.runtime.ports import StreamListener

MESSAGE_BYTES = 512 * 1024
"""Frames share a message up to this size; one that is larger goes alone."""
MESSAGE_BYTES_MAX = STREAM_FRAME_BYTES_MAX + 64
"""The largest frame, and what the message around it takes."""
FRAME_COST_BYTES = 8
"""What a frame takes in a message beside its own bytes."""
WAITING_BYTES_MAX = 2 * LINK_BYTES_MAX
"""What may wait in one stream. Whoever speaks by credit never comes near it."""


class Stream:
    """From its beginning to its end; `number` is how the ears know it."""

    def __init__(self, number: int, listener: StreamListener) -> None:
        self.number = number
        self._listener = listener
        # Reentrant, for ears may close the stream they are just told of.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._open = True
        self._hang_up: Callable[[], object] | None = None

    def stands(self, hang_up: Callable[[], object]) -> None:
        """From now on this ends what carries the stream."""
        with self._changed:
            self._hang_up = hang_up
            late = not self._open
        if late:
            hang_up()

    # ---- out ----

    def send(self, data: bytes) -> None:
        """Behind the others."""
        with self._changed:
            if not self._open:
                return
            self._waiting_bytes += len(data) + FRAME_COST_BYTES
            if len(data) <= STREAM_FRAME_BYTES_MAX and self._waiting_bytes <= WAITING_BYTES_MAX:
                self._waiting.append(data)
                self._changed.notify_all()
                return
        self.ended(f"{len(data)} bytes more are too many: {self._waiting_bytes} wait")

    def messages(self, message: Callable[..., Any]) -> Iterator[Any]:
        """For the thread that sends: all frames, as they come, until the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or not self._open)
                if not self._open:
                    return
                frames = self._take()
            yield message(frames=frames)

    def _take(self) -> list[bytes]:
        frames: list[bytes] = []
        size = 0
        while self._waiting:
            cost = len(self._waiting[0]) + FRAME_COST_BYTES
            if frames and size + cost > MESSAGE_BYTES:
                break
            frames.append(self._waiting.popleft())
            size += cost
        self._waiting_bytes -= size
        return frames

    # ---- in ----

    def accepted(self) -> None:
        """The first word of a stream that came in."""
        with self._changed:
            if self._open:
                self._listener.accepted(self.number)

    def arrived(self, frames: Iterable[bytes]) -> None:
        """Frames, in their order."""
        with self._changed:
            for data in frames:
                if not self._open:
                    return
                self._listener.arrived(self.number, data)

    # ---- the end ----

    def ended(self, text: str) -> None:
        """It is no more, and not because it was closed here: the ears are told, once."""
        self._end(text)

    def close(self) -> None:
        """The ears are told nothing more."""
        self._end("")

    def _end(self, text: str) -> None:
        with self._changed:
            if not self._open:
                return
            self._open = False
            self._waiting.clear()
            self._changed.notify_all()
            if text:
                self._listener.closed(self.number, text)
            hang_up = self._hang_up
        if hang_up is not None:
            hang_up()
