"""The settings of a daemon: one YAML file, checked whole before anything is opened.

Turns a file into values, and every mistake into a text that names the field. It must not open a
socket or a store, nor guess: what is not known is refused, because a misspelt setting that is
passed over in silence is found out at the worst time.

Paths in the file are relative to the folder it lies in.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import msgspec
import yaml

from peloton.config import (
    GRPC_DEFAULT,
    HTTP_DEFAULT,
    PORT_MAX,
    RECEIVE_MAX_BYTES,
    Address,
    BadSetting,
    HostSetting,
    check_hosts,
    loopback,
)

GROUP_NAMES = ("jobmgr", "resmgr", "hostmgr")
"""Roles that own shards."""
ROLES = (*GROUP_NAMES, "placement", "api")
FLEET_SHARDS = {"jobmgr": 128, "resmgr": 1, "hostmgr": 64}
ALONE_SHARDS = {"jobmgr": 8, "resmgr": 1, "hostmgr": 8}
SHARDS_MAX = 4096
EXCHANGE_DEFAULT = "127.0.0.1:5399"
CHECKPOINT_BYTES_MIN = 1024 * 1024
SESSION_S_MIN, SESSION_S_MAX = 1.0, 300.0


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One mapping of the file."""


class Listen(_Record, frozen=True):
    """Where others reach this daemon. `advertise` is what peers dial, where that differs."""

    exchange: str = EXCHANGE_DEFAULT
    advertise: str = ""
    grpc: str = GRPC_DEFAULT
    http: str = HTTP_DEFAULT


class TlsFiles(_Record, frozen=True):
    """Certificates between daemons, in PEM; without them peers meet on loopback only.

    `server_name` is what all certificates say, where they do not say the address.
    """

    ca: Path
    certificate: Path
    key: Path
    server_name: str = ""


class Zookeeper(_Record, frozen=True):
    """Who is there. `root` is where clients look for leaders as well."""

    hosts: list[str]
    session_timeout_s: float = 6.0
    root: str = "/peloton"


class Sqlite(_Record, frozen=True):
    """A journal in this folder, for a daemon that is alone."""

    folder: Path


class Cassandra(_Record, frozen=True):
    """A journal that all daemons of a cluster share."""

    contacts: list[str]
    port: int = 9042
    keyspace: str = "peloton"
    data_centre: str | None = None
    username: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None


class JournalSetting(_Record, frozen=True):
    """One of the two."""

    sqlite: Sqlite | None = None
    cassandra: Cassandra | None = None


class ProcessBackendSettings(_Record, frozen=True):
    """Real processes on this machine. Daemons of one machine share the folder, and its keeper."""

    folder: Path
    hosts: list[HostSetting]


class SimulatedBackendSettings(_Record, frozen=True):
    """Runs that only pretend."""

    hosts: list[HostSetting]
    duration_s: float = 1.0
    seed: int = 0


class BackendSetting(_Record, frozen=True):
    """One of the two."""

    process: ProcessBackendSettings | None = None
    simulated: SimulatedBackendSettings | None = None

    @property
    def hosts(self) -> list[HostSetting]:
        """The virtual hosts, whatever runs on them."""
        found = self.process or self.simulated
        return found.hosts if found is not None else []


class LimitSettings(_Record, frozen=True):
    """How much is too much."""

    receive_max_bytes: int = RECEIVE_MAX_BYTES
    checkpoint_bytes_min: int = CHECKPOINT_BYTES_MIN


class DaemonSettings(_Record, frozen=True):
    """All that a daemon is started with. Shard counts are written once and never change."""

    cluster: str
    journal: JournalSetting
    roles: list[str] = msgspec.field(default_factory=lambda: [*ROLES])
    listen: Listen = Listen()
    zookeeper: Zookeeper | None = None
    tls: TlsFiles | None = None
    backend: BackendSetting = BackendSetting()
    shards: dict[str, int] = {}
    limits: LimitSettings = LimitSettings()

    @property
    def alone(self) -> bool:
        """Whether this is the only daemon of its cluster."""
        return self.zookeeper is None

    @property
    def sizes(self) -> dict[str, int]:
        """Shards of each group."""
        return (ALONE_SHARDS if self.alone else FLEET_SHARDS) | self.shards

    @property
    def grpc(self) -> Address:
        """Where clients call."""
        return loopback(self.listen.grpc, "listen.grpc")

    @property
    def http(self) -> Address:
        """Where health, metrics and files are."""
        return loopback(self.listen.http, "listen.http")

    def with_doors(self, grpc: str, http: str) -> DaemonSettings:
        """The same, with other addresses for clients."""
        listen = msgspec.structs.replace(self.listen, grpc=grpc, http=http)
        return msgspec.structs.replace(self, listen=listen)


def read(path: Path, roles: str | None = None) -> DaemonSettings:
    """The settings of a file; `roles`, with commas between them, in place of those in it."""
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        text = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise BadSetting(f"--config: {path}: {text}") from error
    except yaml.YAMLError as error:
        raise BadSetting(f"--config: {path} is not YAML: {error}") from error
    if roles is not None and isinstance(raw, dict):
        raw = raw | {"roles": [role.strip() for role in roles.split(",") if role.strip()]}
    try:
        return parse(raw, path.parent)
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error


def parse(raw: Any, folder: Path) -> DaemonSettings:
    """The settings that a parsed file means, if they make sense together."""

    def path(kind: type, value: Any) -> Any:
        if kind is Path and isinstance(value, str) and value:
            return folder / Path(value).expanduser()
        raise ValueError(f"Expected a path, got {value!r}")

    try:
        found = msgspec.convert(raw, DaemonSettings, dec_hook=path)
    except msgspec.ValidationError as error:
        raise BadSetting(_plain(str(error))) from error
    for check in (_names, _stores, _addresses, _backend, _numbers):
        check(found)
    return found


def _plain(text: str) -> str:
    """`$.a.b` at the end becomes `a.b:` at the beginning, as in all other complaints."""
    what, separator, where = text.rpartition(" - at `$")
    if not separator:
        return text
    return f"{where.rstrip('`').lstrip('.')}: {what}"


def _names(found: DaemonSettings) -> None:
    if not found.cluster or not found.cluster.replace("-", "").replace("_", "").isalnum():
        raise BadSetting(f"cluster: {found.cluster!r} is no name of letters, digits, - and _")
    if not found.roles:
        raise BadSetting(f"roles: none is given; there are {', '.join(ROLES)}")
    for number, role in enumerate(found.roles):
        if role not in ROLES:
            raise BadSetting(f"roles[{number}]: {role!r} is none of {', '.join(ROLES)}")
        if role in found.roles[:number]:
            raise BadSetting(f"roles[{number}]: {role!r} stands twice")


def _stores(found: DaemonSettings) -> None:
    journal = found.journal
    if (journal.sqlite is None) == (journal.cassandra is None):
        raise BadSetting("journal: give one of sqlite and cassandra")
    if journal.sqlite is not None and found.zookeeper is not None:
        raise BadSetting(
            "journal.sqlite: others cannot read it; with zookeeper the journal is in cassandra"
        )
    if journal.cassandra is not None and found.zookeeper is None:
        raise BadSetting("zookeeper: daemons that share a journal find each other through it")
    missing = [role for role in ROLES if role not in found.roles]
    if found.alone and missing:
        raise BadSetting(f"roles: nobody else has {', '.join(missing)}: this daemon is alone")
    if journal.cassandra is not None and not journal.cassandra.contacts:
        raise BadSetting("journal.cassandra.contacts: none is given")
    if found.zookeeper is not None:
        if not found.zookeeper.hosts:
            raise BadSetting("zookeeper.hosts: none is given")
        if not found.zookeeper.root.startswith("/"):
            raise BadSetting(f"zookeeper.root: {found.zookeeper.root!r} does not begin with /")


def _addresses(found: DaemonSettings) -> None:
    assert found.grpc and found.http  # they complain by themselves
    address = _address(found.listen.exchange, "listen.exchange")
    if found.listen.advertise:
        told = _address(found.listen.advertise, "listen.advertise")
        if not told.port:
            raise BadSetting(f"listen.advertise: nobody can dial port 0 of {told.host}")
    elif _is_any(address.host) and not found.alone:
        raise BadSetting(
            f"listen.advertise: peers cannot dial {address.host}; give an address of this machine"
        )
    if found.tls is None and not found.alone:
        loopback(found.listen.exchange, "listen.exchange")


def _address(text: str, field: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit()):
        raise BadSetting(f"{field}: {text!r} is not HOST:PORT")
    if int(port) > PORT_MAX:
        raise BadSetting(f"{field}: port {port} is not between 0 and {PORT_MAX}")
    return Address(host.strip("[]"), int(port))


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _backend(found: DaemonSettings) -> None:
    backend = found.backend
    if backend.process is not None and backend.simulated is not None:
        raise BadSetting("backend: give one of process and simulated")
    name = "process" if backend.process is not None else "simulated"
    if backend.hosts:
        try:
            check_hosts(backend.hosts)
        except BadSetting as error:
            raise BadSetting(f"backend.{name}.{error}") from error
    elif "hostmgr" in found.roles:
        # Its hosts would wait for ever for somebody who can run something.
        raise BadSetting("backend: a daemon with role hostmgr needs one, with hosts")


def _numbers(found: DaemonSettings) -> None:
    for group, count in sorted(found.shards.items()):
        if group not in GROUP_NAMES:
            raise BadSetting(f"shards.{group}: there are {', '.join(GROUP_NAMES)}")
        _between(count, f"shards.{group}", least=1, most=SHARDS_MAX)
    _between(found.limits.receive_max_bytes, "limits.receive_max_bytes", least=1024, most=2**31 - 1)
    _between(found.limits.checkpoint_bytes_min, "limits.checkpoint_bytes_min", least=1, most=2**40)
    if found.zookeeper is not None:
        timeout_s = found.zookeeper.session_timeout_s
        _between(timeout_s, "zookeeper.session_timeout_s", least=SESSION_S_MIN, most=SESSION_S_MAX)
    if found.journal.cassandra is not None:
        _between(found.journal.cassandra.port, "journal.cassandra.port", least=1, most=PORT_MAX)


def _between(number: float, field: str, *, least: float, most: float) -> None:
    if not least <= number <= most:
        raise BadSetting(f"{field}: {number} is not between {least:g} and {most:g}")
