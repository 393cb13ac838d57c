"""Certificates of a gRPC listener that may be replaced while it listens.

Turns a function that returns the PEMs in force into credentials of one port, which ask it at each
new connection; existing connections go on. The PEMs have to be checked before: if gRPC cannot use a
new certificate, it keeps the former one without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import grpc


class ListenerPems(NamedTuple):
    """A listener's certificate, and the authority of client certificates, if it asks for any."""

    certificate: bytes
    key: bytes
    ca: bytes | None = None

    def __repr__(self) -> str:
        return f"ListenerPems(ca={'None' if self.ca is None else '...'})"


def port_credentials(in_force: Callable[[], ListenerPems]) -> grpc.ServerCredentials:
    """Return credentials for one port. Whether peers have to show a certificate never changes."""
    given = [in_force()]

    def changed() -> grpc.ServerCertificateConfiguration | None:
        pems = in_force()
        if pems is given[0]:
            return None  # as before
        given[0] = pems
        return _configuration(pems)

    asks = given[0].ca is not None
    return grpc.dynamic_ssl_server_credentials(
        _configuration(given[0]), changed, require_client_authentication=asks
    )


def _configuration(pems: ListenerPems) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pems.key, pems.certificate)], root_certificates=pems.ca
    )
