"""The exchange between daemons of a fleet, made from settings, and the check of its files.

Turns settings into a listening `GrpcExchange`, or into `CannotStart` with the name of the setting.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from peloton.assembly.extensions import extensions
from peloton.assembly.kinds import SERVICE_MESSAGES
from peloton.assembly.machine import process_name
from peloton.failures import CannotStart
from peloton.runtime.adapters.grpc_exchange import CannotListen, GrpcExchange, Tls
from peloton.runtime.ports import MemberNode, Membership
from peloton.runtime.shells.fleet import FleetPorts
from peloton.settings.access import TlsFiles
from peloton.settings.daemon import DaemonSettings


def open_exchange(settings: DaemonSettings) -> GrpcExchange:
    """Listen for other daemons. Raises CannotStart."""
    try:
        return GrpcExchange(settings.listen.exchange, tls=tls_of(settings))
    except CannotListen as error:
        raise CannotStart(f"listen.exchange: {error}") from error


def fleet_ports(
    settings: DaemonSettings, membership: Membership, *, exchange: GrpcExchange
) -> FleetPorts:
    """Return the ports with which a new process joins the fleet."""
    address = settings.listen.advertise or exchange.address
    node = MemberNode(address, (*settings.roles, *extensions().roles(settings)))
    ports = FleetPorts(process_name(), node, membership, exchange, SERVICE_MESSAGES)
    if settings.zookeeper is None:
        return ports
    return ports._replace(session_s=settings.zookeeper.session_timeout_s)


def tls_of(settings: DaemonSettings) -> Tls | None:
    """Return the files in the form of the exchange."""
    files = settings.tls
    if files is None:
        return None
    return Tls(files.ca, files.certificate, files.key, files.server_name)


def problems(files: TlsFiles) -> Iterator[str]:
    """Yield what is wrong with the files of `tls`, which gRPC would take without a word."""
    unread = []
    for field in ("ca", "certificate", "key"):
        unread += unreadable(f"tls.{field}", getattr(files, field))
    yield from unread
    if unread:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=str(files.ca))
    except OSError as error:
        yield f"tls.ca: {files.ca}: {_why(error)}"
    try:
        # Do not prompt for the passphrase of a key: a daemon has no terminal.
        context.load_cert_chain(str(files.certificate), str(files.key), password=lambda: "")
    except OSError as error:
        yield f"tls.certificate: {files.certificate} with {files.key}: {_why(error)}"


def unreadable(setting: str, file: Path) -> list[str]:
    """Return why a file cannot be read; nothing if it can."""
    try:
        with file.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        return [f"{setting}: {file}: {_why(error)}"]
    return []


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM that can be read"
    return error.strerror or str(error)
