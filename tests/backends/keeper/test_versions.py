"""What a daemon asks a keeper of another version: who it is, and nothing else.

A socket in the folder that answers as such a keeper would.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import wire
from peloton.backends.keeper_messages import KeeperDown, KeeperUp, RunRequest
from peloton.backends.process_runs import OTHER_VERSION, ProcessRuns
from tests.backends.keeper.conftest import HOST, ReportLog

ANSWER = {"a": "hello", "host": "", "epoch": 0}


@pytest.fixture
def listener(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    folder.mkdir(mode=0o700)
    monkeypatch.chdir(folder)  # a socket's path is limited to 107 bytes
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        found.bind("socket")
        found.listen(16)
        found.settimeout(60.0)
        yield found


def asked(sock: socket.socket) -> list[Any]:
    """What is read until the daemon hangs up."""
    lines, found = wire.Lines(), []
    while data := sock.recv(65536):
        found += lines.feed(data)
    return found


@pytest.mark.parametrize("told", [{}, {"version": wire.VERSION + 1}], ids=["none", "another"])
def test_a_keeper_of_another_version_gets_no_orders(
    folder: Path, listener: socket.socket, told: dict[str, int]
) -> None:
    """It would take them for something else."""
    log = ReportLog()
    runs = ProcessRuns(folder, log)
    try:
        runs.hello(HOST, 1)
        runs.launch(HOST, 1, runs=[RunRequest("r-0-1", HOST, "true")])
        for _ in range(2):  # the second time it has the orders when it connects
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(60.0)
                sock.sendall(wire.encode({**ANSWER, **told}))
                assert [(one["q"], one["host"]) for one in asked(sock)] == [("hello", "")]
        log.next_report(KeeperDown, why=OTHER_VERSION)
        assert not [one for one in log.reports if isinstance(one, KeeperUp)]
    finally:
        runs.close()
    assert not os.path.exists(folder / "lock"), "nor is another one started beside it"
