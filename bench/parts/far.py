"""The other daemon of the exchange's benchmark, a process of its own, and the peer on this side.

As a program it listens, says its address on its first line, and serves until its input ends: as
`raw` it sends small frames back and tells of each window that has arrived; as `shell` it is a
daemon's peer shell before a hall that counts envelopes and answers asks. It must not measure: what
it used is read from outside.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from peloton.actors.job.slice.messages import InstanceView, ListInstances  # noqa: E402
from peloton.actors.job.slice.task_config import (  # noqa: E402
    Command,
    TaskConfig,
)
from peloton.actors.resources import UNIT, Resources  # noqa: E402
from peloton.actors.task.messages import TaskGoals  # noqa: E402
from peloton.assembly.kinds import SERVICE_MESSAGES, kinds  # noqa: E402
from peloton.runtime.adapters.grpc_exchange import GrpcExchange, Tls  # noqa: E402
from peloton.runtime.adapters.system_clock import SystemClock  # noqa: E402
from peloton.runtime.core.links.packing import Packing, Route  # noqa: E402
from peloton.runtime.shells.collector import Collector  # noqa: E402
from peloton.runtime.shells.dispatcher import Threads  # noqa: E402
from peloton.runtime.shells.peer import PeerShell  # noqa: E402
from peloton.runtime.shells.peer_messages import Inbound, Peers  # noqa: E402
from peloton.runtime.shells.shell_messages import Ref, resolve, send  # noqa: E402
from peloton.settings.daemon import ALONE_SHARDS  # noqa: E402

HERE, FAR = "a", "b"
"""Member ids; the lower one dials."""
WINDOW = 64
"""Frames under way at once, as many as a link has parcels."""
ECHO, TAKE = b"e", b"t"
"""How a raw frame begins: to be sent back, or one of a window."""
CONFIG = TaskConfig(
    resources=Resources(UNIT, 100 * UNIT, 0, 0), command=Command("python -m work --shard 17")
)
VIEW = InstanceView(
    0, "RUNNING", TaskGoals.RUNNING, 1, 0, "host/agent17", 1.8e9, 1.8e9, 1.8e9, None, None, (),
    CONFIG,
)  # fmt: skip


class Raw:
    """Ears below any protocol."""

    def __init__(self, exchange: GrpcExchange) -> None:
        self._exchange = exchange
        self._taken = 0

    def accepted(self, stream: int) -> None:
        """Let it speak."""

    def arrived(self, stream: int, data: bytes) -> None:
        """As the first byte says."""
        if data[:1] == ECHO:
            self._exchange.send(stream, data)
            return
        self._taken += 1
        if self._taken % (WINDOW // 4) == 0:
            self._exchange.send(stream, TAKE)

    def closed(self, stream: int, text: str) -> None:
        """There will be others."""


class Counting:
    """A hall: what it is told it counts, what it is asked it answers: a view, or the count."""

    def __init__(self) -> None:
        self.heard = 0
        self.up = threading.Event()

    def deliver(self, arrived: Inbound) -> bool:
        """As the port says."""
        for envelope in arrived.envelopes:
            message: Any = envelope.message
            if envelope.reply_to is None:
                self.heard += 1
            elif message == ListInstances(0, 0):
                resolve(envelope.reply_to, self.heard)
            else:
                resolve(envelope.reply_to, (VIEW,))
        return True

    def misdirected(self, peer: str, place: Route, *, view: int) -> None:
        """As the port says."""
        raise AssertionError("there is one place for all")

    def trouble(self, name: str, text: str) -> None:
        """As the port says."""
        if text:
            print(f"{name}: {text}", file=sys.stderr)

    def broke(self, text: str) -> None:
        """As the port says."""
        print(text, file=sys.stderr)


def begin(me: str, exchange: GrpcExchange, *, other: str) -> tuple[Ref, Threads]:
    """A daemon's peer shell with its thread, which knows where the other one is."""
    threads = Threads(SystemClock())
    packing = Packing(kinds(ALONE_SHARDS), SERVICE_MESSAGES)
    driver = threads.driver("shards")
    ref: Ref = PeerShell.start(me, driver, exchange=exchange, packing=packing, router=Counting())
    # Of ourselves nobody asks here; the one who is dialled need not know where the dialler is.
    send(ref, Peers(1, {HERE: other, FAR: other}, me))
    return ref, threads


def main(mode: str, *files: str) -> None:
    """Until the input ends."""
    exchange = GrpcExchange("127.0.0.1:0", tls=Tls(*map(Path, files)) if files else None)
    if mode == "raw":
        exchange.listen(Raw(exchange))
    else:
        begin(FAR, exchange, other="127.0.0.1:1")
    Collector().own()
    print(exchange.address, flush=True)
    sys.stdin.read()
    exchange.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
