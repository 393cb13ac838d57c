"""How a client proves its identity, and to which addresses it sends what.

An address has a route: where to dial, with which certificates, and the metadata that proves the
caller. If a daemon of the same user runs at an address of this machine, its token and its socket
are found automatically. A token or a password must not be sent in clear to another machine, unless
the user allows it, as others could read it; nor a token that was found to any process but the one
that wrote it, nor any secret in clear to a name that stands for two addresses.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from peloton.sdk import errors
from peloton.settings import access_files
from peloton.settings.access_files import BadSecretFile, ClusterEntry, entry_of, is_local
from peloton.settings.certificate_dates import CertificateDates, dates_of, texts_now

TOKEN_FILE_VARIABLE = "PELOTON_TOKEN_FILE"
USERNAME_VARIABLE, PASSWORD_FILE_VARIABLE = "PELOTON_USERNAME", "PELOTON_PASSWORD_FILE"
PLAIN_TEXT_VARIABLE = "PELOTON_PLAIN_TEXT"
TLS_VARIABLES = {
    "ca": "PELOTON_TLS_CA",
    "certificate": "PELOTON_TLS_CERT",
    "key": "PELOTON_TLS_KEY",
}


class Login(NamedTuple):
    """User name and password for basic authentication."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login(username={self.username!r}, password=...)"


class ClientTlsFiles(NamedTuple):
    """PEM files: the authority of the servers' certificates, and the client's own certificate,
    if any."""

    ca: str
    certificate: str = ""
    key: str = ""


class Credentials(NamedTuple):
    """What a client has.

    `plain_text`: a password may be sent in clear to other machines.
    """

    login: Login | None = None
    token_file: str = ""
    tls: ClientTlsFiles | None = None
    plain_text: bool = False


def from_environment(environment: Mapping[str, str] | None = None) -> Credentials:
    """Return the credentials that the variables of this process name. Raises BadSpec."""
    known = os.environ if environment is None else environment
    files = {field: known.get(name, "") for field, name in TLS_VARIABLES.items()}
    username, password_file = known.get(USERNAME_VARIABLE), known.get(PASSWORD_FILE_VARIABLE)
    if bool(username) != bool(password_file):
        raise errors.BadSpec(f"{USERNAME_VARIABLE} and {PASSWORD_FILE_VARIABLE} go together")
    return Credentials(
        login=login_of(username, password_file) if username and password_file else None,
        token_file=known.get(TOKEN_FILE_VARIABLE, ""),
        plain_text=known.get(PLAIN_TEXT_VARIABLE, "").lower() in ("1", "true", "yes", "on"),
        tls=ClientTlsFiles(**files) if files["ca"] else None,
    )


def login_of(username: str, password_file: str) -> Login:
    """Return a user with the password in a file or a pipe: its first line. Raises BadSpec."""
    try:
        text = access_files.read_secret_file(Path(password_file), pipes=True)
    except BadSecretFile as error:
        raise errors.BadSpec(str(error), field="password") from None
    return Login(username, text.partition("\n")[0].rstrip("\r"))


class CallRoute(NamedTuple):
    """How to call one address. `target` is what is dialled."""

    target: str
    metadata: tuple[tuple[str, str], ...] = ()
    entry: ClusterEntry | None = None

    def __repr__(self) -> str:
        names = tuple(name for name, _ in self.metadata)
        return f"CallRoute(target={self.target!r}, metadata={names}, entry={self.entry})"

    @property
    def holds(self) -> bool:
        """Return whether the process that the route was made for still runs, and listens there."""
        return self.entry is None or access_files.is_published(self.entry)


class Routes:
    """The routes of one client; found again when a daemon has ended or refused the client."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._routes: dict[str, CallRoute] = {}
        tls = credentials.tls
        self._secure = _channel_credentials(tls) if tls is not None else None
        self._dates = _dates_of(tls) if tls is not None else ()
        self._token = _token_in(credentials.token_file) if credentials.token_file else ""

    def to(self, address: str) -> CallRoute:
        """Return the route to an address. Raises ServiceUnavailable, Denied."""
        route = self._routes.get(address)
        if route is None or not route.holds:
            route = self._routes[address] = self._found(address)
        return route

    def is_changed(self, address: str) -> bool:
        """Look for another route to an address that refused the client; return whether there is
        one."""
        old = self._routes.pop(address, None)
        if self._credentials.token_file:
            # It may have been replaced; while it is, the one before is refused as it was.
            with contextlib.suppress(errors.BadSpec):
                self._token = _token_in(self._credentials.token_file)
        try:
            new = self._routes[address] = self._found(address)
        except errors.ServiceUnavailable:
            return False
        return old is not None and (old.target, old.metadata) != (new.target, new.metadata)

    def certificate_texts(self, *, good: bool) -> list[str]:
        """Return which certificates of the client end soon; or else, which are not good now."""
        return texts_now(self._dates, good=good)

    def channel(self, target: str, options: list[tuple[str, object]], *, module: Any) -> Any:
        """Return a channel of `grpc` or `grpc.aio`, with the certificates that are used there."""
        if self._secure is None or target.startswith(access_files.UNIX):
            return module.insecure_channel(target, options=options)
        return module.secure_channel(target, self._secure, options=options)

    def _found(self, address: str) -> CallRoute:
        known, local = self._credentials, is_local(address)
        private = local or self._secure is not None
        if known.login is not None:
            if not private and not known.plain_text:
                raise errors.Denied(
                    f"{address}: a password would be sent there in clear; name the authority of "
                    "its certificate (--tls-ca), or allow it with --plain-text",
                    kind="PLAIN_TEXT",
                )
            metadata = tuple(zip(Login._fields, known.login, strict=True))
            return self._pinned(address, metadata=metadata, entry=entry_of(address))
        if not local:
            return CallRoute(address, _bearer(self._token) if self._token and private else ())
        return self._by_entry(address)

    def _by_entry(self, address: str) -> CallRoute:
        """Return the route by what a daemon of the user has written about this address of this
        machine."""
        entry = _entry_with_socket(address)
        if entry is not None and entry.socket:
            return CallRoute(access_files.socket_target(entry.socket), (), entry)
        if self._token:
            return self._pinned(address, metadata=_bearer(self._token), entry=entry)
        if entry is None or not entry.token_file:
            return CallRoute(address, (), entry)
        try:
            token = access_files.read_token(Path(entry.token_file))
        except BadSecretFile:
            # Its refusal says how to name another one.
            return CallRoute(address, (), entry)
        return CallRoute(_one_address(entry.address), _bearer(token), entry)

    def _pinned(
        self, address: str, *, metadata: tuple[tuple[str, str], ...], entry: ClusterEntry | None
    ) -> CallRoute:
        """Return the route of a secret that the user named, to one process if nothing proves
        whose it is."""
        if self._secure is not None:  # the certificate is for the name, and proves it
            return CallRoute(address, metadata, entry)
        known = entry.address if entry is not None else address
        return CallRoute(_one_address(known), metadata, entry)


def _one_address(address: str) -> str:
    """Refuse a name that stands for two addresses: at the other one another user may listen."""
    host, colon, port = address.partition(":")
    return f"127.0.0.1{colon}{port}" if host == access_files.LOCALHOST else address


def _entry_with_socket(address: str) -> ClusterEntry | None:
    """Return the entry of this address; its socket exists, if it names one.

    Raises ServiceUnavailable. The socket is removed when a daemon stops to listen: then its port
    may be another user's by now.
    """
    entry = entry_of(address)
    if entry is not None and not _is_there(entry):
        entry = entry_of(address)  # the first one may have been withdrawn meanwhile
    if entry is None or _is_there(entry):
        return entry
    raise errors.ServiceUnavailable(
        f"{address}: the socket of the daemon there, {entry.socket}, is gone: it is about to stop",
        kind=errors.NO_CONNECTION,
    )


def _is_there(entry: ClusterEntry) -> bool:
    return not entry.socket or os.path.exists(entry.socket)


def _token_in(file: str) -> str:
    try:
        return access_files.read_token(Path(file).expanduser())
    except BadSecretFile as error:
        raise errors.BadSpec(str(error), field="token_file") from None


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def _dates_of(files: ClientTlsFiles) -> tuple[CertificateDates, ...]:
    named = {"tls.ca": files.ca, "tls.certificate": files.certificate}
    return dates_of({name: Path(file).expanduser() for name, file in named.items() if file})


def _channel_credentials(files: ClientTlsFiles) -> grpc.ChannelCredentials:
    if bool(files.certificate) != bool(files.key):
        raise errors.BadSpec("a certificate and its key go together", field="tls")
    try:
        read = [Path(name).expanduser().read_bytes() if name else None for name in files]
    except OSError as error:
        raise errors.BadSpec(f"{error.filename}: {error.strerror}", field="tls") from None
    ca, certificate, key = read
    return grpc.ssl_channel_credentials(ca, key, certificate)
