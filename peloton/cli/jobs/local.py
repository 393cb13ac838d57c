"""A cluster for one command, or the demo: started in a temporary folder, ended with its tasks.

`peloton minicluster` runs as a process of its own. Whichever way the command ends, nothing is left
behind, unless it is killed with SIGKILL.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from peloton.cli.shared.options import CliSettings
from peloton.cli.shared.output import hint
from peloton.cli.shared.session import connected
from peloton.sdk.errors import ServerError

if TYPE_CHECKING:
    from peloton.sdk.client import Client

START_MAX_S, STOP_MAX_S = 60.0, 30.0
LEAVE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def local_client() -> Iterator[Client]:
    """Return a client of a cluster that lives as long as the context."""
    settings = click.get_current_context().ensure_object(CliSettings)
    if "--api" in settings.typed:
        raise click.UsageError("--local and --api: give only one of them")
    with tempfile.TemporaryDirectory(prefix="peloton-local-") as folder:
        cluster = LocalCluster(Path(folder))
        try:
            # Its own address, for this command only: no hint may name it.
            settings.values["api"] = cluster.address()
            settings.values["zk_servers"] = settings.values["cluster_name"] = None
            with connected() as peloton:
                yield peloton
        finally:
            if not cluster.stop():
                hint("the local cluster did not stop in time, and was killed")


class LocalCluster:
    """A minicluster on free ports, whose data are in `folder`."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self._errors = folder / "errors"
        ports = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--no-classic-ports")
        data = ("--data-dir", str(folder / "data"))
        words = ("minicluster", *data, *ports, "--stop-tasks-on-exit", *options)
        with open(self._errors, "wb") as errors:
            # A session of its own: Ctrl-C goes to the command only, which stops the cluster.
            self._process = subprocess.Popen(
                # -P: no module of the user's folder.
                [sys.executable, "-P", "-m", "peloton", *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                text=True, start_new_session=True,
            )  # fmt: skip

    def address(self) -> str:
        """Wait until the cluster serves; return its address."""
        assert self._process.stdout is not None
        late = threading.Timer(START_MAX_S, self._process.kill)
        late.start()
        try:
            for line in self._process.stdout:
                if line.startswith("ready: grpc "):
                    return line.split()[-1]
        finally:
            late.cancel()
        code = self._process.wait(STOP_MAX_S)
        said = self._errors.read_text(encoding="utf-8", errors="backslashreplace").strip()
        raise ServerError(f"the local cluster ended with exit code {code}: {said}")

    def stop(self) -> bool:
        """End the cluster with its tasks; return whether it ended by itself.

        A second Ctrl-C must not leave it running.
        """
        before = {number: signal.signal(number, signal.SIG_IGN) for number in LEAVE}
        try:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_MAX_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                return False
            return True
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
            for number, handler in before.items():
                signal.signal(number, handler)
