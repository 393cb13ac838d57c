"""The access to a daemon from its settings, and the entries by which its clients find it.

Turns settings into an `Authentication`, a Unix socket, and entries where the clients of the same
user find the token.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from peloton.failures import CannotStart
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.access.basic_users import BadUsers, BasicUsers, parse_users
from peloton.gateway.access.file_links import FileLinks
from peloton.gateway.http_server import HttpAccess
from peloton.runtime.adapters.claimed_folder import SOCKET, TOKEN
from peloton.runtime.adapters.grpc_certificates import ListenerPems
from peloton.runtime.adapters.private_folder import user_name
from peloton.runtime.core.health import NotReadyReason
from peloton.settings import access_files
from peloton.settings.access import ClientTls
from peloton.settings.access_files import BadSecretFile, ClusterEntry
from peloton.settings.config import Address, BadSetting, read_yaml
from peloton.settings.daemon import DaemonSettings

ANYBODY = "open to all users of this machine"
EVERYBODY = "open to all who reach its port"
DEFAULT_USER = "auth.file: the role of the default user accepts *"
OPEN_EXCHANGE = (
    f"listen.exchange is {ANYBODY}: each can pose as a daemon of this fleet, whatever its clients "
    "have to prove. Give tls, or let no other users on this machine"
)
SHARED_AUTHORITY = (
    "listen.tls.client_ca and tls.ca hold the same authority: each client with a certificate can "
    "pose as a daemon of this fleet. Give clients an authority of their own"
)
CONNECT_S = 1.0


class ClientAccess:
    """The access of clients to one daemon, from construction, which reads the files, to `close`."""

    def __init__(self, settings: DaemonSettings, *, report: Callable[[str], object]) -> None:
        """Read the files. `report` takes warnings for people. Raises CannotStart."""
        self._settings, self._report = settings, report
        self.setting = setting = settings.callers
        self._entries: list[ClusterEntry] = []
        self._token_file = token_file(settings) if setting.has_token else None
        self.users: BasicUsers | None = None
        """Those in force, where callers show passwords."""
        self._default_runs_all = False  # whether callers without a password may call everything
        self.authentication = self._authentication()
        self.notes = tuple(self._notes())
        """What health says of it; no reason against being ready."""
        for text in (*(note.text for note in self.notes), *_shared_authority(settings)):
            report(f"warning: {text}")
        # With rules BrowseSandbox decides who gets files, also where nobody has to prove a name.
        everybody = setting.is_open and settings.access.file is None
        links = None if everybody else FileLinks()
        self.files = HttpAccess(links, self.authentication.knows)
        """Who gets files over HTTP."""

    def take(self, fresh: ClientAccess) -> None:
        """Use the authentication of `fresh`, which has read the files of the same settings anew."""
        self.authentication.replace(fresh.authentication)
        self._default_runs_all, self.notes = fresh._default_runs_all, fresh.notes
        self.users = fresh.users

    @property
    def open_to(self) -> str:
        """Who may call everything without proving anything; empty if nobody may."""
        if self.setting.is_open:
            return ANYBODY
        return EVERYBODY if self._default_runs_all else ""

    def _notes(self) -> Iterator[NotReadyReason]:
        """Yield what people have to know of a daemon that is open."""
        if self.open_to:
            by = self.setting.open_by if self.setting.is_open else DEFAULT_USER
            text = f"{self.open_to}: each can run commands as {_owner()} ({by})"
            yield NotReadyReason("access", text)
        if not self._settings.alone and self._settings.tls is None:
            yield NotReadyReason("exchange", OPEN_EXCHANGE)

    def _authentication(self) -> Authentication:
        setting = self.setting
        tls = _read_tls(setting.tls) if setting.tls is not None else None
        if setting.has_passwords:
            assert setting.auth.file is not None
            self.users = users = _checked(setting.auth.file)
            self._default_runs_all = users.default is not None and users.default.role.accepts_all
            return Authentication.by_password(users, tls=tls)
        if setting.has_certificates:
            assert tls is not None
            return Authentication.by_certificate(tls)
        if self._token_file is None:
            return Authentication.open(tls=tls)
        try:
            access_files.made_token(self._token_file)
            tokens = access_files.read_tokens(self._token_file)
        except BadSecretFile as error:
            raise CannotStart(f"auth.token_file: {error}") from error
        return Authentication.by_token(*tokens, owner=_owner(), open_=setting.is_open, tls=tls)

    @property
    def socket(self) -> Path | None:
        """The socket for our user's clients, if there is room for its name."""
        sqlite = self._settings.journal.sqlite
        if sqlite is None or not self.setting.has_token:
            return None
        path = sqlite.folder.absolute() / SOCKET
        return path if len(os.fsencode(path)) <= access_files.SOCKET_PATH_BYTES_MAX else None

    def prepare_socket(self) -> str:
        """Return the socket's address for gRPC, after a check that no process listens there."""
        path = self.socket
        if path is None:
            return ""
        refuse_living(path)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                path.unlink()
        return access_files.socket_target(path)

    def publish(self, addresses: Sequence[Address]) -> None:
        """Publish these addresses to the clients of our user; the servers listen by now."""
        if self._token_file is None:
            return
        path = self.socket
        if path is not None:
            os.chmod(path, access_files.FILE_MODE)
        file, at = str(self._token_file.absolute()), str(path) if path is not None else ""
        self._entries = [
            access_files.entry_for(str(one), token_file=file, socket=at) for one in addresses
        ]
        try:
            access_files.publish(self._entries)
        except OSError as error:
            where = access_files.state_folder()
            self._report(
                f"warning: {where}: {error.strerror}: clients do not find the token by themselves; "
                f"name it with --token-file {file}"
            )

    def withdraw(self) -> None:
        """Withdraw the entries of our addresses, before the servers stop to listen."""
        try:
            access_files.withdraw(self._entries)
        except OSError as error:
            where = access_files.state_folder()
            self._report(f"warning: {where}: {error.strerror}: the entries of this daemon remain")

    def close(self) -> None:
        """Remove the entries and the socket."""
        self.withdraw()
        with contextlib.suppress(OSError):
            if self._entries and self._entries[0].socket:
                os.unlink(self._entries[0].socket)
        self._entries = []


def token_file(settings: DaemonSettings) -> Path:
    """Return the token file of the settings, of the data folder, or of all our user's fleets."""
    named, sqlite = settings.auth.token_file, settings.journal.sqlite
    if named is not None:
        return named
    if sqlite is not None:
        return sqlite.folder / TOKEN
    return access_files.state_folder() / access_files.FLEET_TOKEN


def problems(settings: DaemonSettings) -> list[str]:
    """Return what would prevent the start, without making anything."""
    setting, found = settings.callers, list[str]()
    try:
        if setting.tls is not None:
            _read_tls(setting.tls)
    except CannotStart as error:
        found.append(str(error))
    try:
        if setting.has_passwords and setting.auth.file is not None:
            _checked(setting.auth.file)
    except CannotStart as error:
        found.append(str(error))
    try:
        if setting.has_token and token_file(settings).exists():
            access_files.read_token(token_file(settings))
    except (BadSecretFile, OSError) as error:
        found.append(f"auth.token_file: {error}")
    return found


def refuse_living(path: Path) -> None:
    """Raise CannotStart if a process listens at this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(str(path))
        except OSError as error:
            # Left behind by a process that was killed, or never there.
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK):
                return
            raise CannotStart(f"socket {path}: {error.strerror or error}") from error
    raise CannotStart(f"socket {path} is busy: another process listens there")


def _checked(file: Path) -> BasicUsers:
    """Return the users of a file that is kept from others. Raises CannotStart."""
    try:
        access_files.read_secret_file(file)
        return parse_users(read_yaml(file, "auth.file", secret=True))
    except BadSecretFile as error:
        raise CannotStart(f"auth.file: {error}") from error
    except BadSetting as error:
        raise CannotStart(str(error)) from error
    except BadUsers as error:
        raise CannotStart("\n".join(f"auth.file: {file}: {text}" for text in error.texts)) from None


def _read_tls(files: ClientTls) -> ListenerPems:
    """Read and check the files, which gRPC would not. Raises CannotStart."""
    ca = files.client_ca
    try:
        read = ListenerPems(
            files.certificate.read_bytes(),
            files.key.read_bytes(),
            ca.read_bytes() if ca is not None else None,
        )
        text = access_files.exposed(files.key)
    except OSError as error:
        raise CannotStart(f"listen.tls: {error.filename}: {error.strerror}") from error
    if text:
        raise CannotStart(f"listen.tls.key: {text}")
    context, at = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), f"{files.certificate} with {files.key}"
    try:
        # Do not prompt for the passphrase of a key: a daemon has no terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
        if ca is not None:
            at = str(ca)
            context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise CannotStart(f"listen.tls: {at}: {error.reason or error}") from error
    return read


def _shared_authority(settings: DaemonSettings) -> Iterator[str]:
    """Yield a warning if one authority certifies both clients and daemons."""
    clients, daemons = settings.callers.tls, settings.tls
    if clients is None or clients.client_ca is None or daemons is None:
        return
    try:
        if _certificates(clients.client_ca) & _certificates(daemons.ca):
            yield SHARED_AUTHORITY
    except OSError as error:
        raise CannotStart(f"tls: {error.filename}: {error.strerror}") from error


def _certificates(file: Path) -> set[bytes]:
    """Return the certificates of a file in PEM, without white space."""
    _, *found = file.read_bytes().split(b"-----BEGIN CERTIFICATE-----")
    return {b"".join(one.partition(b"-----END")[0].split()) for one in found}


def _owner() -> str:
    return user_name(os.geteuid())
