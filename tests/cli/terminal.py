"""A terminal without one: runs a command line in this process and keeps what it printed.

test_start.py starts a process, where the cost of loading is tested.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import NamedTuple

import structlog

from peloton.__main__ import PROCESSES
from peloton.cli.main import root, run_cli
from tests.sdk.fakes import Cluster, serving


class Printed(NamedTuple):
    code: int
    out: str
    err: str


def typed(*words: str) -> Printed:
    """What one command line prints, and its exit code."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with unchanged_process(), redirect_stdout(out), redirect_stderr(err):
        try:
            code = run_cli(root(PROCESSES), list(words))
        except SystemExit as ended:  # of a command that starts or inspects a process
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Printed(code, text_of(out), text_of(err))


@contextmanager
def unchanged_process() -> Iterator[None]:
    """A command that starts a daemon, or is refused to, sets the process up as its own."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    log, hook, umask = structlog.get_config(), threading.excepthook, os.umask(0o022)
    os.umask(umask)
    try:
        yield
    finally:
        os.umask(umask)
        threading.excepthook = hook
        structlog.configure(**log)
        for each, handler in handlers.items():
            # Threads type commands as well; only the main one may start a daemon.
            if signal.getsignal(each) is not handler:
                signal.signal(each, handler)


def text_of(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


@contextmanager
def answering(text: str) -> Iterator[None]:
    """Somebody types this where a command asks."""
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before


class Terminal:
    """A terminal whose commands go to one fake cluster."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self.cluster = cluster
        self.address = address

    def __call__(self, *words: str) -> Printed:
        # Whoever answers does so at once, unless the machine is busy with something else.
        return typed("--api", self.address, "-t", "60s", *words)

    def lines(self, *words: str) -> Sequence[str]:
        return self(*words).out.splitlines()


@contextmanager
def terminal() -> Iterator[Terminal]:
    cluster = Cluster()
    with serving(cluster) as address:
        yield Terminal(cluster, address)
