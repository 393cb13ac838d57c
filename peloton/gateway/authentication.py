"""Who may call at all: the caller of each call is known, or the call ends.

Turns the metadata, the address and the certificate of a call into a `Principal`, or into
UNAUTHENTICATED or PERMISSION_DENIED, before any byte of the request is received. What a known
caller may do to an object is not decided here, nor is anything read from a file.

    socket         the Unix socket in a data folder. gRPC does not tell the user of a peer: that
                   only the folder's owner (and root) can open the socket is the proof
    token          the token of the daemon, in `authorization: Bearer TOKEN`
    basic          the original's `username` and `password`, and the rules of the user's role
    tls            a client certificate, which TLS has checked
    open           nobody has to prove anything: the names that clients claim are unverified

`grpc.health.v1.Health/Check` is open to all, for service managers and load balancers. Reflection
is a call like others.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import grpc

from peloton.gateway.basic_users import BasicUsers, service_and_method
from peloton.gateway.guard import CallCode, CallEnded
from peloton.gateway.principals import CALLER, claimed, host_of
from peloton.runtime.core.principal import BASIC, NONE, SOCKET, TLS, TOKEN, Principal

AUTHORIZATION, USERNAME, PASSWORD = "authorization", "username", "password"
SECRETS = frozenset((AUTHORIZATION, PASSWORD))
"""Metadata that no handler and no log gets to see."""
OPEN_PATHS = frozenset(("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"))
BEARER = "bearer "
UNIX = "unix:"
NOBODY = Principal("", NONE)
HOW_TO_CALL = (
    "The command line and the SDK find it by themselves where the user who started this daemon "
    "runs them; else name a copy of its token file (--token-file, PELOTON_TOKEN_FILE). "
    "--open-loopback (listen.open_loopback) serves clients that know no token"
)
NO_TOKEN = f"this daemon answers only calls with its token, and there is none. {HOW_TO_CALL}"
WRONG_TOKEN = f"the token of this call is not that of this daemon. {HOW_TO_CALL}"
NO_USER = "invalid Username/Password combination"
NO_CERTIFICATE = "this daemon answers only clients with a certificate that it can check"

Metadata = Iterable[tuple[str, Any]]


class ListenerTls(NamedTuple):
    """In PEM: what the listener shows, and the authority of its clients' certificates, if any."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    @property
    def credentials(self) -> grpc.ServerCredentials:
        """For gRPC."""
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.client_ca,
            require_client_auth=self.client_ca is not None,
        )


class Authentication:
    """One way for all listeners of a daemon. Made by the functions below."""

    def __init__(
        self,
        way: Callable[[str, Mapping[str, Any], _Peer], Principal],
        *,
        open_: bool = False,
        token: str = "",
        tls: ListenerTls | None = None,
    ) -> None:
        self._way = way
        self.is_open = open_
        """Whether callers need not prove who they are."""
        self.tls = tls
        self._token = token.encode()

    @classmethod
    def open(cls, *, tls: ListenerTls | None = None) -> Authentication:
        """Everybody may call, under any name."""
        return cls(_unproven, open_=True, tls=tls)

    @classmethod
    def by_token(
        cls, token: str, *, owner: str, open_: bool = False, tls: ListenerTls | None = None
    ) -> Authentication:
        """Callers at the Unix socket and those with the token act for `owner`.

        `open_`: others may call as well, under any name.
        """
        known = token.encode()

        def way(path: str, metadata: Mapping[str, Any], peer: _Peer) -> Principal:
            caller = str(metadata.get(CALLER, ""))
            if peer.address.startswith(UNIX):
                return Principal(owner, SOCKET, "unix", caller)
            given = _bearer(str(metadata.get(AUTHORIZATION, "")))
            if given and hmac.compare_digest(given, known):
                return Principal(owner, TOKEN, _host(peer.address), caller)
            if open_:
                return _unproven(path, metadata, peer)
            _refuse(CallCode.UNAUTHENTICATED, WRONG_TOKEN if given else NO_TOKEN)

        return cls(way, open_=open_, token=token, tls=tls)

    @classmethod
    def by_password(cls, users: BasicUsers, *, tls: ListenerTls | None = None) -> Authentication:
        """Callers are users of a file, and may call what their roles accept."""
        permitted = lru_cache(maxsize=4096)(users.permits)

        def way(path: str, metadata: Mapping[str, Any], peer: _Peer) -> Principal:
            user = users.user(metadata.get(USERNAME), metadata.get(PASSWORD))
            if user is None:
                _refuse(CallCode.UNAUTHENTICATED, NO_USER)
            if not permitted(user.role.name, path):
                service, method = service_and_method(path)
                text = f"not permitted to call {method} in {service}"
                _refuse(CallCode.PERMISSION_DENIED, text)
            caller = str(metadata.get(CALLER, ""))
            return Principal(user.name, BASIC, _host(peer.address), caller, user.role.name)

        return cls(way, tls=tls)

    @classmethod
    def by_certificate(cls, tls: ListenerTls) -> Authentication:
        """Callers have a certificate, which gRPC has checked before a call begins."""

        def way(path: str, metadata: Mapping[str, Any], peer: _Peer) -> Principal:
            name = next(iter(peer.identities or ()), None)
            if not name:
                _refuse(CallCode.UNAUTHENTICATED, NO_CERTIFICATE)
            caller = str(metadata.get(CALLER, ""))
            return Principal(name.decode(errors="replace"), TLS, _host(peer.address), caller)

        return cls(way, tls=tls)

    def admit(
        self, path: str, metadata: Metadata, *, peer: str, identities: Iterable[bytes] | None = None
    ) -> Principal:
        """Who makes a call of this method. Raises CallEnded for callers who may not.

        `peer` is gRPC's name of the client's address, `identities` are the names in its
        certificate.
        """
        if path in OPEN_PATHS:
            return NOBODY
        return self._way(path, dict(metadata), _Peer(peer, identities))

    def knows(self, authorization: str) -> bool:
        """Whether an HTTP request has the token of this daemon."""
        given = _bearer(authorization)
        return bool(given and self._token) and hmac.compare_digest(given, self._token)


class _Peer(NamedTuple):
    """The other end of a connection."""

    address: str
    identities: Iterable[bytes] | None


def without_secrets(metadata: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    """What handlers and logs may see of the metadata."""
    if any(pair[0] in SECRETS for pair in metadata):
        return tuple(pair for pair in metadata if pair[0] not in SECRETS)
    return metadata


def _unproven(path: str, metadata: Mapping[str, Any], peer: _Peer) -> Principal:
    return claimed(metadata, _host(peer.address))


def _refuse(code: Any, text: str) -> NoReturn:
    raise CallEnded(code, text)


def _bearer(authorization: str) -> bytes:
    scheme, token = authorization[: len(BEARER)], authorization[len(BEARER) :]
    return token.strip().encode() if scheme.lower() == BEARER else b""


_host = lru_cache(maxsize=4096)(host_of)
"""Connections are few, and each makes many calls."""
