"""The guardian of an executor: which signals end it, and which do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

WAIT_S_MAX = 60.0
PROGRAM = """
import os, sys
from peloton.backends.mesos.executor.guardian import guard

def work(guardian):
    print(os.getpid(), flush=True)
    sys.stdin.read()

guard(work, clear=lambda: None)
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_terminal_that_closes_ends_neither_guardian_nor_executor(number: signal.Signals) -> None:
    """Their agent may have been started at one."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None and process.stdin is not None
            executor = int(process.stdout.readline())
            for pid in (process.pid, executor):
                os.kill(pid, number)
            process.stdin.close()
            assert process.wait(WAIT_S_MAX) == 0
        finally:
            process.kill()
