"""Who may connect: what both sides show each other first, and what ends a connection."""

from __future__ import annotations

import functools
import os
import pickle
import queue
import resource
import socket
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from peloton.sdk.executor import peers
from tests.adapters.test_daemon_wiring import until
from tests.sdk.executor.rig import WITHIN_S, Rig, rig

pytest.importorskip("cloudpickle", reason="the extra `executor` is not installed")
CHALLENGE, WELCOME = b"#CHALLENGE#", b"#WELCOME#"


def test_workers_are_let_in_once_there_are_descriptors_again(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    one = Rig(tmp_path)
    one.server._socket = listening = peers.serving(one.address)
    accepting = threading.Thread(target=one.server._accept)  # takes a descriptor before it waits
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            accepting.start()
            until(lambda: any("Too many open files" in str(one.message) for one in [*warned]))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with socket.create_connection(listening.getsockname(), WITHIN_S) as stranger:
        assert stranger.recv(1024), "a challenge"
    one.close()
    accepting.join(WITHIN_S)
    assert not accepting.is_alive()


def test_who_does_not_know_the_token_is_never_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    harm = pickle.dumps(Harm(marker))
    with rig(tmp_path) as one:
        with pytest.raises(AuthenticationError):
            peers.dialled(one.address, b"another token")
        with socket.create_connection(one.address) as stranger:
            stranger.sendall(len(harm).to_bytes(4, "big") + harm)
            stranger.settimeout(WITHIN_S)
            while stranger.recv(1024):
                pass  # a challenge, and then nothing more
        assert not one.server.links
    assert not marker.exists()


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the platform has none")
def test_both_sides_notice_a_machine_that_is_gone_in_half_a_minute() -> None:
    token = peers.new_token()
    with peers.serving(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as other:
        dialling = other.submit(peers.dialled, listening.getsockname()[:2], token)
        with peers.welcomed(listening.accept()[0], token) as one, dialling.result(WITHIN_S) as two:
            for connection in (one, two):
                with socket.socket(fileno=os.dup(connection.fileno())) as opened:
                    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                    option = functools.partial(opened.getsockopt, socket.IPPROTO_TCP)
                    probed_s = option(socket.TCP_KEEPINTVL) * option(socket.TCP_KEEPCNT)
                    assert option(socket.TCP_KEEPIDLE) + probed_s == 30


def test_a_worker_trusts_no_client_without_the_token(tmp_path: Path) -> None:
    token = peers.new_token()
    with peers.serving(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with pytest.raises((AuthenticationError, *peers.BROKEN)):
                peers.welcomed(listening.accept()[0], b"another")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((AuthenticationError, *peers.BROKEN)):
            peers.dialled(listening.getsockname()[:2], token)
        thread.join(WITHIN_S)


def test_workers_do_not_convince_each_other_for_who_has_no_token(tmp_path: Path) -> None:
    token, marker = peers.new_token(), tmp_path / "unpickled"
    refused: queue.Queue[BaseException] = queue.Queue()
    with peers.serving(("127.0.0.1", 0)) as listening:

        def work() -> None:
            try:
                peers.receive(peers.dialled(listening.getsockname()[:2], token))
            except (AuthenticationError, *peers.BROKEN) as error:
                refused.put(error)

        workers = [threading.Thread(target=work) for _ in range(2)]
        for thread in workers:
            thread.start()
        one, other = (Connection(listening.accept()[0].detach()) for _ in workers)
        with one, other:
            one.send_bytes(CHALLENGE + bytes(20))
            one.recv_bytes()
            one.send_bytes(WELCOME)  # its answer may be anything
            other.send_bytes(one.recv_bytes())  # the challenge of the one, to the other
            one.send_bytes(other.recv_bytes())
            one.send_bytes(pickle.dumps(Harm(marker)))
            assert isinstance(refused.get(timeout=WITHIN_S), AuthenticationError)
        for thread in workers:
            thread.join(WITHIN_S)
    assert not marker.exists()
