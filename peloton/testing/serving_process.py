"""One daemon as a child process: begun until it serves, killed, stopped, begun again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STOP_S_MAX = 60.0
READY = "ready: grpc "
"""What a daemon prints once it serves, before the address for clients."""


class ServingProcess:
    """A minicluster, or a daemon of a fleet, over all its processes."""

    def __init__(self, folder: Path, name: str = "") -> None:
        """`folder` is where what it writes to stderr is kept, under this name."""
        self.folder = folder
        self.errors_file = folder / (f"{name}.stderr" if name else "stderr")
        self.process: subprocess.Popen[str] | None = None
        self.address = ""

    def words(self) -> Sequence[str]:
        """Return what is typed behind the name of the program."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin a process, and return once it serves. Raises AssertionError with its errors."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.errors_file.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "peloton", *self.words()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(READY):
                self.address = line.split()[-1]
                return
        raise AssertionError(f"the daemon did not start:\n{self.errors()}")

    @property
    def runs(self) -> bool:
        """Return whether there is a process."""
        return self.process is not None and self.process.poll() is None

    def errors(self) -> str:
        """Return what it wrote to stderr, over all its processes."""
        return self.errors_file.read_text() if self.errors_file.exists() else ""

    def kill(self) -> None:
        """End the process as by `kill -9`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """Ask the process to hand over and end; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S_MAX)
