"""Authentication: the caller of each call is known, or the call ends.

The metadata, the address and the certificate of a call become a `Principal`, or else
UNAUTHENTICATED or PERMISSION_DENIED, before any byte of the request is received. Permissions to
single objects are checked later, by the gates.

    socket         the Unix socket in a data folder. gRPC does not tell the user of a peer: that
                   only the folder's owner (and root) can open the socket is the proof
    token          the token of the daemon, in `authorization: Bearer TOKEN`
    basic          the original's `username` and `password`, and the rules of the user's role
    tls            a client certificate, which TLS has checked
    open           callers need no proof: the names that clients claim are unverified

`grpc.health.v1.Health/Check` is open to all, for service managers and load balancers. Reflection is
a call like others.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, Protocol, TypeAlias

import grpc

from peloton.gateway.access.basic_users import BasicUsers, service_and_method
from peloton.gateway.access.guard import CallCode, CallEnded
from peloton.gateway.access.principals import CALLER, CALLER_LENGTH_MAX, claimed, host_of
from peloton.runtime.adapters.grpc_certificates import ListenerPems, port_credentials
from peloton.runtime.core.principal import BASIC, NONE, SOCKET, TLS, TOKEN, Principal

AUTHORIZATION, USERNAME, PASSWORD = "authorization", "username", "password"
SECRETS = frozenset((AUTHORIZATION, PASSWORD))
"""Metadata that no handler and no log gets to see."""
OPEN_PATHS = frozenset(("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"))
BEARER = "bearer "
UNIX = "unix:"
PATHS_KEPT_MAX, PATH_LENGTH_MAX = 1024, 128
"""Paths whose answer is kept for each role: longer than that of any method none is."""
NAMES_LENGTH_MAX = 512
"""A principal with longer names is made anew for each call."""
NOBODY = Principal("", NONE)
HOW_TO_CALL = (
    "The command line and the SDK find it by themselves where the user who started this daemon "
    "runs them; else name a copy of its token file (--token-file, PELOTON_TOKEN_FILE). "
    "--open-loopback (listen.open_loopback) serves clients that know no token"
)
NO_TOKEN = f"this daemon requires its token, and the call has none. {HOW_TO_CALL}"
WRONG_TOKEN = f"wrong token. {HOW_TO_CALL}"
NO_USER = "invalid Username/Password combination"
NO_CERTIFICATE = "this daemon requires a client certificate that it can check"

Metadata: TypeAlias = Mapping[str, Any]
Names: TypeAlias = Iterable[bytes] | None


class _Way(Protocol):
    """One way in which callers prove who they are."""

    def __call__(self, path: str, metadata: Metadata, *, peer: str, identities: Names) -> Principal:
        """Return the caller; raises CallEnded."""


class Authentication:
    """The way of authentication of all listeners of a daemon. Made by the functions below."""

    def __init__(
        self,
        way: _Way,
        *,
        open_: bool = False,
        tokens: Sequence[bytes] = (),
        tls: ListenerPems | None = None,
    ) -> None:
        self._way = way
        self.is_open = open_
        """Whether callers need not prove who they are."""
        self._tls = tls
        self._tokens = tokens

    def replace(self, other: Authentication) -> None:
        """Take over users, tokens and certificates of another of the same way.

        They hold from the next call and the next connection on; calls under way go on.
        """
        self._way, self._tokens, self._tls = other._way, other._tokens, other._tls

    def port_credentials(self) -> grpc.ServerCredentials | None:
        """Return the credentials for one port; None: without TLS."""
        return port_credentials(self._pems) if self._tls is not None else None

    def _pems(self) -> ListenerPems:
        assert self._tls is not None, "the way never changes"
        return self._tls

    @property
    def has_tls(self) -> bool:
        """Return whether a caller may have shown a certificate."""
        return self._tls is not None

    @classmethod
    def open(cls, *, tls: ListenerPems | None = None) -> Authentication:
        """Admit all callers, under any name."""
        return cls(_unproven, open_=True, tls=tls)

    @classmethod
    def by_token(
        cls, *tokens: str, owner: str, open_: bool = False, tls: ListenerPems | None = None
    ) -> Authentication:
        """Admit callers at the Unix socket and those with one of the tokens, as `owner`.

        `open_`: others may call as well, under any name.
        """
        known = [token.encode() for token in tokens]

        def way(path: str, metadata: Metadata, *, peer: str, identities: Names) -> Principal:
            if peer.startswith(UNIX):
                return _principal(owner, SOCKET, peer=peer, caller=metadata.get(CALLER, ""))
            given = _bearer(metadata.get(AUTHORIZATION, ""))
            if _is_one_of(given, known):
                return _principal(owner, TOKEN, peer=peer, caller=metadata.get(CALLER, ""))
            if open_:
                return claimed(metadata, _host(peer))
            _refuse(CallCode.UNAUTHENTICATED, WRONG_TOKEN if given else NO_TOKEN)

        return cls(way, open_=open_, tokens=known, tls=tls)

    @classmethod
    def by_password(cls, users: BasicUsers, *, tls: ListenerPems | None = None) -> Authentication:
        """Admit users of a file, to the calls that their roles accept."""
        kept = lru_cache(maxsize=PATHS_KEPT_MAX)(users.permits)

        def permitted(role: str, path: str) -> bool:
            # No method has a longer path, so what clients make up is not kept.
            return (kept if len(path) <= PATH_LENGTH_MAX else users.permits)(role, path)

        def way(path: str, metadata: Metadata, *, peer: str, identities: Names) -> Principal:
            user = users.user(metadata.get(USERNAME), metadata.get(PASSWORD))
            if user is None:
                _refuse(CallCode.UNAUTHENTICATED, NO_USER)
            if not permitted(user.role.name, path):
                _refuse(CallCode.PERMISSION_DENIED, _not_permitted(path))
            caller = metadata.get(CALLER, "")
            return _principal(user.name, BASIC, peer=peer, caller=caller, role=user.role.name)

        return cls(way, tls=tls)

    @classmethod
    def by_certificate(cls, tls: ListenerPems) -> Authentication:
        """Admit callers with a certificate, which gRPC has checked before a call begins."""

        def way(path: str, metadata: Metadata, *, peer: str, identities: Names) -> Principal:
            name = next(iter(identities or ()), None)
            if not name:
                _refuse(CallCode.UNAUTHENTICATED, NO_CERTIFICATE)
            text, caller = name.decode(errors="replace"), metadata.get(CALLER, "")
            return _principal(text, TLS, peer=peer, caller=caller)

        return cls(way, tls=tls)

    def admit(
        self, path: str, metadata: Metadata, *, peer: str, identities: Names = None
    ) -> Principal:
        """Return who makes a call of this method. Raises CallEnded for callers who may not.

        `peer` is gRPC's name of the client's address, `identities` are the names in its
        certificate.
        """
        if path in OPEN_PATHS:
            return NOBODY
        return self._way(path, metadata, peer=peer, identities=identities)

    def knows(self, authorization: str) -> bool:
        """Return whether an HTTP request has a token of this daemon."""
        return _is_one_of(_bearer(authorization), self._tokens)


def without_secrets(metadata: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Return the metadata that handlers and logs may see."""
    return tuple([pair for pair in metadata if pair[0] not in SECRETS])  # noqa: C409 - quicker


def _unproven(path: str, metadata: Metadata, *, peer: str, identities: Names) -> Principal:
    return claimed(metadata, _host(peer))


def _not_permitted(path: str) -> str:
    parts = service_and_method(path)
    if parts is None:
        return "not permitted: the path of this call is not /SERVICE/METHOD"
    return f"not permitted to call {parts[1]} in {parts[0]}"


def _refuse(code: Any, text: str) -> NoReturn:
    raise CallEnded(code, text)


def _is_one_of(given: bytes, tokens: Sequence[bytes]) -> bool:
    """Return whether the token is one of these.

    There are two while one replaces the other.
    """
    return bool(given) and any(hmac.compare_digest(given, token) for token in tokens)


def _bearer(authorization: str) -> bytes:
    scheme, token = authorization[: len(BEARER)], authorization[len(BEARER) :]
    return token.strip().encode() if scheme.lower() == BEARER else b""


def _principal(name: str, how: str, *, peer: str, caller: str, role: str = "") -> Principal:
    """Return the principal, one object for many calls: connections are few, and each makes many
    calls."""
    make = _kept_principal if len(name) + len(peer) <= NAMES_LENGTH_MAX else _made_principal
    return make(name, how, peer=peer, caller=caller[:CALLER_LENGTH_MAX], role=role)


def _made_principal(name: str, how: str, *, peer: str, caller: str, role: str) -> Principal:
    return Principal(name, how, host_of(peer), caller, role)


_kept_principal = lru_cache(maxsize=4096)(_made_principal)
_kept_host = lru_cache(maxsize=4096)(host_of)


def _host(peer: str) -> str:
    return (_kept_host if len(peer) <= NAMES_LENGTH_MAX else host_of)(peer)
