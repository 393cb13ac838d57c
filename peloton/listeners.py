"""The listeners for clients: the HTTP server and the gRPC server of a daemon, and their addresses.

Turns settings into servers on a region, or into `CannotStart` with the name of the setting. It must
not decide when they begin to listen, nor answer any call itself.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from peloton.config import Address
from peloton.failures import CannotStart
from peloton.gateway.http import HttpServer
from peloton.gateway.server import build_server
from peloton.port_holder import port_holder
from peloton.runtime.shells.region import Region
from peloton.settings import DaemonSettings
from peloton.start_options import StartOptions
from peloton.task_accounts import health_notes

CALLS_GRACE_S = 0.5
CALLS_STOP_S_MAX = 2.0


class ClientListeners:
    """Both servers, from `listen_http` and `listen_grpc` to `stop_calls` and `close`."""

    def __init__(
        self, settings: DaemonSettings, options: StartOptions, *, report: Callable[[str], object]
    ) -> None:
        """`report` takes warnings for people."""
        self._settings = settings
        self._names = options.names
        self._classic = options.classic
        runs = settings.backend.process
        # Below a file there is nothing, ever.
        self._sandboxes = (runs.folder if runs is not None else Path(os.devnull)) / "runs"
        self._stop_grpc: list[Callable[[], object]] = []
        self._stop_http: list[Callable[[], object]] = []
        self._report = report
        self._notes = health_notes(settings, options.names)

    def refuse_busy(self) -> None:
        """Raise CannotStart if an address that must be had is busy now."""
        settings, remedy = self._settings, self._names.other_ports
        _refuse_busy(self._names.http, settings.http, remedy=remedy)
        if "api" in settings.roles:
            _refuse_busy(self._names.grpc, settings.grpc, remedy=remedy)

    def listen_http(self, region: Region) -> Address:
        """Serve health, metrics and files; the address, with the port that was found."""
        wanted = self._settings.http
        _refuse_busy(self._names.http, wanted, remedy=self._names.other_ports)
        try:
            server = HttpServer(wanted, region, sandboxes=self._sandboxes, notes=self._notes)
        except OSError as error:
            raise CannotStart(f"{self._names.http}: {wanted}: {error.strerror}") from error
        self._stop_http.append(server.close)
        return server.address

    def listen_grpc(
        self, region: Region, *, http: Address, broken: Callable[[str], object]
    ) -> Address:
        """Serve calls; `http` is where their answers say that files are.

        `broken` is called with a text if no call can be served any more.
        """
        wanted = self._settings.grpc
        addresses = [wanted]
        for address in self._classic:
            if not why_not(address):
                addresses.append(address)
            else:
                self._report(f"warning: classic port {address} is busy: not listening there")
        _refuse_busy(self._names.grpc, wanted, remedy=self._names.other_ports)
        try:
            server, ports = build_server(
                region,
                [str(address) for address in addresses],
                http=http,
                receive_max_bytes=self._settings.limits.receive_max_bytes,
                sandboxes=self._sandboxes if self._settings.backend.process is not None else None,
            )
        except RuntimeError as error:  # taken since the check above
            raise CannotStart(f"{self._names.grpc}: {wanted}: {error}") from error
        server.start(broken=broken)
        self._stop_grpc.append(lambda: server.stop(grace_s=CALLS_GRACE_S).wait(CALLS_STOP_S_MAX))
        return Address(wanted.host, ports[0])

    def stop_calls(self) -> None:
        """No call is answered any more; those under way have a moment to end."""
        while self._stop_grpc:
            self._stop_grpc.pop()()

    def close(self) -> None:
        """Listen no more."""
        self.stop_calls()
        while self._stop_http:
            self._stop_http.pop()()


def with_chosen_ports(settings: DaemonSettings) -> DaemonSettings:
    """The settings with ports that are free now where they say 0.

    In a fleet the addresses are published to clients before anything listens there.
    """
    return settings.with_doors(_with_port(settings.grpc), _with_port(settings.http))


def why_not(address: Address) -> str:
    """Why we could not listen there; empty where we could."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            holder = port_holder(address)
            return f"is busy: {holder or 'another program'} listens there"
        return f"cannot be had: {error.strerror or error}"
    return ""


def _refuse_busy(setting: str, address: Address, *, remedy: str) -> None:
    why = why_not(address) if address.port else ""
    if why:
        raise CannotStart(f"{setting}: {address} {why}. {remedy}")


def _with_port(address: Address) -> str:
    if address.port:
        return str(address)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address.host, 0))
        return str(Address(address.host, probe.getsockname()[1]))
