"""A server as a process of its own with a gRPC address, ended with the benchmark.

It must not load it, nor leave it behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc

ROOT = Path(__file__).resolve().parent.parent.parent
CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
]


class ServerProcess:
    """From its start, when it has said its address, to its end."""

    def __init__(self, words: Sequence[str], *, name: str, folder: Path, errors: Path) -> None:
        self.name = name
        # Should we be killed, the kernel ends the server.
        setpriv = shutil.which("setpriv")
        bound = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                [*bound, sys.executable, *words],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self.errors = errors.read_text
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().split()
        if ready[:2] != ["ready:", "grpc"]:
            raise SystemExit(f"{name} did not start: {self.errors()}")
        self.address, self.pid = ready[-1], self._process.pid
        self.channel = grpc.insecure_channel(self.address, CHANNEL)

    def close(self) -> None:
        """At once, by SIGKILL."""
        self.channel.close()
        self._process.kill()
        self._process.communicate()
