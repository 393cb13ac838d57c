"""The daemon's side of the keeper: reach it, start it, remember unanswered requests.

Turns a folder into a connected socket, and unanswered requests into those to repeat to a successor.
Of an answer only the request that it settles is read.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from peloton.backends.keeper import identity, wire

START_TIMEOUT_S = 20.0
_KEEPER = Path(__file__).parent / "keeper" / "__main__.py"
_READY_STATUS, _HELD_STATUS = 0, 3
# The daemon's environment may hold secrets, and a task can read the one of its parent.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")

_OF_NO_HOST = ("ack", "lease")
"""Requests that are sent once: who lost one makes another."""


class KeeperUnavailable(Exception):
    """No keeper answers and none could be started, for now."""


class UnansweredRequests:
    """Requests without an answer, with their hosts' epochs, bounded by the hosts' ledgers.

    A launch with values of secrets is sent once and not kept: if it is lost, its host misses the
    run in the list that follows, and orders it again, with values that are read anew.
    """

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._launches: dict[str, wire.KeeperMessage] = {}
        self._kills: dict[str, wire.KeeperMessage] = {}

    def record(self, message: wire.KeeperMessage) -> wire.KeeperMessage | None:
        """Record a request; return it to be sent, or None while nobody owns its host here."""
        request = message["q"]
        if request in _OF_NO_HOST:
            return message
        host = message["host"]
        if "epoch" in message:
            self._epochs[host] = max(message["epoch"], self._epochs.get(host, -1))
        elif host not in self._epochs:
            return None
        else:
            message["epoch"] = self._epochs[host]
        if request == "launch":
            for run in message["runs"]:
                if not _has_values(run):
                    self._launches[run["run"]] = {**message, "runs": [run]}
        elif request == "kill":
            for pair in message["runs"]:
                self._kills[pair[0]] = {**message, "runs": [pair]}
        return message

    def settle(self, message: wire.KeeperMessage) -> None:
        """Remove the answered requests: `started` ends a launch, an end all of a run."""
        answer = message["a"]
        if answer in ("started", "ended"):
            self._launches.pop(message["run"], None)
        if answer in ("ended", "unknown"):
            self._kills.pop(message["run"], None)
        if answer == "refused":
            self._forget(message["host"], message["epoch"])

    def _forget(self, host: str, epoch: int) -> None:
        if self._epochs.get(host, -1) <= epoch:
            self._epochs.pop(host, None)
        for requests in (self._launches, self._kills):
            for run_id in [r for r, m in requests.items() if m["host"] == host]:
                if requests[run_id]["epoch"] <= epoch:
                    del requests[run_id]

    def forget_requests(self) -> None:
        """Forget all requests: one was refused as invalid, and would be for ever.

        The hosts order again what is missing in the next listing.
        """
        self._launches.clear()
        self._kills.clear()

    def repeats(self) -> Iterator[wire.KeeperMessage]:
        """Yield all requests, lists last: one that overtook a launch would not list its run."""
        for host, epoch in self._epochs.items():
            yield hello_of(host, epoch)
        yield from self._launches.values()
        yield from self._kills.values()
        for host, epoch in self._epochs.items():
            yield {"q": "list", "host": host, "epoch": epoch}


def hello_of(host: str, epoch: int) -> wire.KeeperMessage:
    return {"q": "hello", "host": host, "epoch": epoch}


def _has_values(run: wire.KeeperMessage) -> bool:
    return bool(run.get("secrets", {}).get("files"))


def dial(folder: Path) -> socket.socket:
    """Connect through a descriptor of the folder: a socket's path is limited to 107 bytes.

    It never blocks: if the backlog of the keeper is full, it raises OSError.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the keeper's folder belongs to another user")
        sock.setblocking(False)
        sock.connect(f"/proc/self/fd/{fd}/socket")
    except OSError:
        sock.close()
        raise
    finally:
        os.close(fd)
    return sock


def start_keeper(folder: Path, settings: Sequence[str]) -> None:
    """Start the keeper; it detaches by itself. Raises KeeperUnavailable.

    This process must not fork: gRPC's threads would not survive it.
    """
    command = [sys.executable, "-I", "-S", str(_KEEPER), str(folder), *settings]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder / "keeper.log", "ab", opener=identity.private) as log:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,
                timeout=START_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise KeeperUnavailable("the keeper did not start in time") from late
    if done.returncode not in (_READY_STATUS, _HELD_STATUS):
        raise KeeperUnavailable(f"the keeper did not start; see {folder / 'keeper.log'}")
