"""A scheduler of pymesos in a process of its own, which does and tells one thing a line.

pymesos takes over SIGINT when it is imported, and interrupts the main thread when its own thread
fails: a test must not have it in its process. Run as a module it reads `[method, arguments]` in
JSON and writes `[what, value]`; `Client` is the other end.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers.pymesos_parser import stand_in

WAIT_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


class Client:
    """A driver of pymesos for one master, which acknowledges nothing by itself."""

    def __init__(self, address: str, framework: dict[str, Any], *, failover: bool = True) -> None:
        words = [sys.executable, "-m", "tests.servers.pymesos_client", address]
        self.process = subprocess.Popen(
            [*words, json.dumps(framework), json.dumps(failover)], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._seen: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        self._said: list[str] = []
        self._readers = [
            threading.Thread(target=target, daemon=True) for target in (self._read, self._listen)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, value = json.loads(line)
            self._seen.put((what, value))
        self._seen.put(None)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self._said.extend(self.process.stderr)

    def call(self, method: str, *arguments: Any) -> None:
        """Have the driver's method called."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, arguments]) + "\n")
        self.process.stdin.flush()

    def next(self, what: str, *, where: Callable[[Any], bool] = lambda _: True) -> Any:
        """What the scheduler was told next of this kind; the rest is dropped."""
        while True:
            found = self._seen.get(timeout=WAIT_S)
            assert found is not None, "".join(self._said)
            if found[0] == what and where(found[1]):
                return found[1]

    def wait_end(self) -> str:
        """What it said on stderr, once it has ended by itself."""
        self.process.wait(WAIT_S)
        for reader in self._readers:  # to the end of its file
            reader.join(WAIT_S)
        return "".join(self._said)

    def close(self) -> None:
        """End it as a crash would: the framework stays."""
        self.process.kill()
        self.process.communicate()


def _main(address: str, framework: dict[str, Any], *, failover: bool) -> None:
    stand_in()
    from pymesos import MesosSchedulerDriver, Scheduler

    lock = threading.Lock()

    def tell(what: str, value: Any = None) -> None:
        with lock:
            print(json.dumps([what, value]), flush=True)

    class Teller(Scheduler):  # type: ignore[misc]
        def registered(self, _: Any, framework_id: Any, master: Any) -> None:
            tell("registered", framework_id)

        def reregistered(self, _: Any, master: Any) -> None:
            tell("reregistered", master)

        def disconnected(self, _: Any) -> None:
            tell("disconnected")

        def resourceOffers(self, _: Any, offers: Any) -> None:  # noqa: N802
            tell("offers", offers)

        def offerRescinded(self, _: Any, offer_id: Any) -> None:  # noqa: N802
            tell("rescinded", offer_id)

        def statusUpdate(self, _: Any, status: Any) -> None:  # noqa: N802
            tell("update", status)

        def slaveLost(self, _: Any, agent_id: Any) -> None:  # noqa: N802
            tell("lost", agent_id)

        def error(self, _: Any, message: Any) -> None:
            tell("error", message)

        def processHeartBeat(self, _: Any) -> None:  # noqa: N802
            tell("heartbeat")

    driver = MesosSchedulerDriver(
        Teller(), framework, address, implicit_acknowledgements=False, failover=failover
    )
    driver.start()
    for line in sys.stdin:
        method, arguments = json.loads(line)
        try:
            getattr(driver, method)(*arguments)
        except (RuntimeError, OSError, AssertionError) as error:
            tell("failed", [method, f"{type(error).__name__}: {error}"])
        else:
            tell("done", method)


if __name__ == "__main__":
    _main(sys.argv[1], json.loads(sys.argv[2]), failover=json.loads(sys.argv[3]))
