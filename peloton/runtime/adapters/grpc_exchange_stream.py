"""One end of a stream of frames: its send queue, and the listener of what arrives.

Turns frames into messages for the thread that sends, and events on other threads into calls of the
listener. No caller is blocked: queued frames are bounded, and beyond the bound the stream ends.

One lock covers the queue and the calls of the listener: otherwise a stream that was closed
meanwhile could deliver one more event.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from peloton.runtime.core.links.parcels import LINK_BYTES_MAX, STREAM_FRAME_BYTES_MAX
from peloton.runtime.ports import StreamListener

MESSAGE_BYTES = 512 * 1024
"""Frames share a message up to this size; one that is larger goes alone."""
MESSAGE_BYTES_MAX = STREAM_FRAME_BYTES_MAX + 64
"""The largest frame, plus the overhead of its message."""
FRAME_COST_BYTES = 8
"""Overhead of a frame in a message."""
QUEUED_BYTES_MAX = 2 * LINK_BYTES_MAX
"""Limit of one stream's queue. A link with credit never comes near it."""


class Stream:
    """One end of a stream; `number` identifies it to the listener."""

    def __init__(self, number: int, listener: StreamListener) -> None:
        self.number = number
        self._listener = listener
        # Reentrant: the listener may close the stream within its own call.
        self._changed = threading.Condition(threading.RLock())
        self._queued: deque[bytes] = deque()
        self._queued_bytes = 0
        self._open = True
        self._cancel: Callable[[], object] | None = None

    def established(self, cancel: Callable[[], object]) -> None:
        """Set the callback that ends the stream's transport."""
        with self._changed:
            self._cancel = cancel
            late = not self._open
        if late:
            cancel()

    # ---- out ----

    def send(self, data: bytes) -> None:
        """Queue a frame."""
        with self._changed:
            if not self._open:
                return
            self._queued_bytes += len(data) + FRAME_COST_BYTES
            if len(data) <= STREAM_FRAME_BYTES_MAX and self._queued_bytes <= QUEUED_BYTES_MAX:
                self._queued.append(data)
                self._changed.notify_all()
                return
        self.ended(f"too many bytes: a frame of {len(data)}, {self._queued_bytes} queued with it")

    def messages(self, message: Callable[..., Any]) -> Iterator[Any]:
        """Yield all frames, as they come, until the end; called by the thread that sends."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queued or not self._open)
                if not self._open:
                    return
                frames = self._take()
            yield message(frames=frames)

    def _take(self) -> list[bytes]:
        frames: list[bytes] = []
        size = 0
        while self._queued:
            cost = len(self._queued[0]) + FRAME_COST_BYTES
            if frames and size + cost > MESSAGE_BYTES:
                break
            frames.append(self._queued.popleft())
            size += cost
        self._queued_bytes -= size
        return frames

    # ---- in ----

    def accepted(self) -> None:
        """Tell the listener that the stream was accepted."""
        with self._changed:
            if self._open:
                self._listener.accepted(self.number)

    def arrived(self, frames: Iterable[bytes]) -> None:
        """Deliver frames, in sequence."""
        with self._changed:
            for data in frames:
                if not self._open:
                    return
                self._listener.arrived(self.number, data)

    # ---- the end ----

    def ended(self, text: str) -> None:
        """End a stream that was not closed here: call the listener, once."""
        self._end(text)

    def close(self) -> None:
        """End the stream without calling the listener."""
        self._end("")

    def _end(self, text: str) -> None:
        with self._changed:
            if not self._open:
                return
            self._open = False
            self._queued.clear()
            self._changed.notify_all()
            if text:
                self._listener.closed(self.number, text)
            cancel = self._cancel
        if cancel is not None:
            cancel()
