"""One server as a process: started until it answers, paused, killed, stopped, started again.

What is common to all servers; a server adds its configuration, its command line and how to ask it
whether it is ready. It never sleeps blindly: it waits for the process to end, with a limit, so that
a server which dies at once is reported at once, with the end of its log.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import ClassVar

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.05
LOG_TAIL_CHARS = 4000
PORT_FIRST, PORT_LAST = 10_000, 30_000
"""Below where the kernel takes ports for outgoing connections, which could be one of ours."""


class ServerFailed(Exception):
    """A server did not start, or did not stop; the text ends with the end of its log."""


class Server:
    """A process that serves on 127.0.0.1:`port` from `folder`, which keeps its data and its log."""

    name: ClassVar[str] = "server"

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    # ---- what each server says for itself ----

    def configure(self) -> None:
        """Write the configuration into the folder."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it is ready for clients."""
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """What it finds in its environment; nothing: what we have in ours."""
        return None

    # ---- its life ----

    def launch(self, *, outlive: bool = False) -> None:
        """Start the process without waiting for it. Unless told to, it does not outlive us."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.configure()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_wrapped(outlive=outlive), *self.command()],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.environment(),
                # An interrupt at the terminal is the tests' affair; they still need the server.
                start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Return when it answers. Raises ServerFailed."""
        assert self.process is not None
        until_s = time.monotonic() + READY_TIMEOUT_S
        while not self.answers():
            try:
                code = self.process.wait(LOOK_AGAIN_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < until_s:
                    continue
                self.kill()
                raise self._failed(f"did not answer within {READY_TIMEOUT_S} s") from None
            self.process = None
            raise self._failed(f"ended with {code} before it answered")

    def restart(self) -> None:
        """Start it again on the same data and the same port, after `kill` or `stop`."""
        if self.process is not None:
            raise ServerFailed(f"{self.name} runs already")
        self.launch()
        self.wait_until_ready()

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing answers from now on."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        # Its threads stop one by one, and may answer until the last one has.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        """Thaw it: what was asked meanwhile is done now."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a crash of the server would end it, not of the machine."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """As an operator would; a paused one is thawed first."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(f"did not stop within {STOP_TIMEOUT_S} s") from None
        self.process = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None:
            raise ServerFailed(f"{self.name} does not run")
        self.process.send_signal(number)

    def _failed(self, text: str) -> ServerFailed:
        tail = self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:] if self.log.exists() else ""
        return ServerFailed(f"{self.name} {text}; its log {self.log} ends:\n{tail}")


def _wrapped(*, outlive: bool) -> list[str]:
    """What stands before the command: less rights, and an end when ours comes."""
    setpriv = shutil.which("setpriv")
    words = []
    if setpriv is not None and not outlive:
        # A test run that is killed cannot stop its servers any more: the kernel does.
        words += ["--pdeathsig", "KILL"]
    if setpriv is not None and os.geteuid() == 0:
        # With the right to do so a JVM locks its whole heap into memory.
        words += ["--bounding-set", "-ipc_lock"]
    return [str(setpriv), *words] if words else []


def free_ports(count: int) -> list[int]:
    """Loopback ports nobody listens on; two processes begin to look at different places."""
    found: list[int] = []
    span = PORT_LAST - PORT_FIRST
    for step in range(span):
        port = PORT_FIRST + (os.getpid() * 37 + step) % span
        if port not in _given and _free(port):
            _given.append(port)
            found.append(port)
            if len(found) == count:
                return found
    raise ServerFailed(f"no {count} free ports between {PORT_FIRST} and {PORT_LAST}")


_given: list[int] = []
"""Handed out by this process, though perhaps nobody listens there yet."""


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
