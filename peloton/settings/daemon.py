"""The settings of a daemon: one YAML file, checked whole before anything is opened.

Turns a file into values, and every mistake into a text that names the field. An unknown setting is
refused, because a misspelt one that is ignored in silence is found out at the worst time.

Paths in the file are relative to the folder it lies in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from peloton.settings import mistyped
from peloton.settings.access import (
    Access,
    AccessSetting,
    AuthSettings,
    ClientTls,
    TlsFiles,
)
from peloton.settings.archive import ArchiveSetting, archive_problems
from peloton.settings.backend import (
    IMAGES_MODES,
    LIMITS_MODES,
    SANDBOXES_KEPT_MAX,
    SANDBOXES_KEPT_MB_MAX,
    TASK_PIDS_MAX,
    BackendSetting,
    ProcessBackendSettings,
    mesos_problems,
)
from peloton.settings.config import (
    GRPC_DEFAULT,
    HTTP_DEFAULT,
    PORT_MAX,
    Address,
    BadSetting,
    host_problems,
    ip_address,
    is_any,
    loopback,
    read_yaml,
    same_port,
    with_lines,
)
from peloton.settings.limits import LimitSettings, limit_problems
from peloton.settings.notify import NotifySetting, notify_problems
from peloton.settings.placement import PlacementSetting, placement_problems
from peloton.settings.preemption import PreemptionSetting, preemption_problems
from peloton.settings.secrets import SecretsSetting

GROUP_NAMES = ("jobmgr", "resmgr", "hostmgr")
"""Roles that own shards."""
ROLES = (*GROUP_NAMES, "placement", "api")
FLEET_SHARDS = {"jobmgr": 16, "resmgr": 1, "hostmgr": 16}
ALONE_SHARDS = {"jobmgr": 8, "resmgr": 1, "hostmgr": 8}
"""Shards of each group where the config does not say; written once, in the cluster record."""
SHARDS_MAX = 4096
EXCHANGE_DEFAULT = "127.0.0.1:5399"
SESSION_S_MIN, SESSION_S_MAX = 1.0, 300.0
SERVER = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping of the file."""


class Listen(_Record, frozen=True):
    """The addresses of this daemon.

    `advertise` is what peers dial, if that differs. `tls` and `open_loopback` are for clients
    (`access_settings`).
    """

    exchange: str = EXCHANGE_DEFAULT
    advertise: str = ""
    grpc: str = GRPC_DEFAULT
    http: str = HTTP_DEFAULT
    tls: ClientTls | None = None
    open_loopback: bool = False


class Zookeeper(_Record, frozen=True):
    """The membership. Clients look for leaders below `root` as well."""

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
    """The journal: one of the two."""

    sqlite: Sqlite | None = None
    cassandra: Cassandra | None = None


class DaemonSettings(_Record, frozen=True):
    """The settings of a daemon. Shard counts are written once and never change."""

    cluster: str
    journal: JournalSetting
    roles: list[str] = msgspec.field(default_factory=lambda: [*ROLES])
    listen: Listen = Listen()
    zookeeper: Zookeeper | None = None
    tls: TlsFiles | None = None
    auth: AuthSettings = AuthSettings()
    backend: BackendSetting = BackendSetting()
    shards: dict[str, int] = {}
    limits: LimitSettings = LimitSettings()
    archive: ArchiveSetting = ArchiveSetting()
    preemption: PreemptionSetting = PreemptionSetting()
    placement: PlacementSetting = PlacementSetting()
    access: AccessSetting = AccessSetting()
    notify: NotifySetting = NotifySetting()
    secrets: SecretsSetting = SecretsSetting()

    @property
    def alone(self) -> bool:
        """Whether this is the only daemon of its cluster."""
        return self.zookeeper is None

    @property
    def sizes(self) -> dict[str, int]:
        """The number of shards of each group."""
        return (ALONE_SHARDS if self.alone else FLEET_SHARDS) | self.shards

    @property
    def grpc(self) -> Address:
        """The address for clients' calls."""
        return ip_address(self.listen.grpc, "listen.grpc")

    @property
    def callers(self) -> Access:
        """The authentication of callers."""
        listen = self.listen
        return Access(auth=self.auth, tls=listen.tls, open_loopback=listen.open_loopback)

    @property
    def http(self) -> Address:
        """The address of health, metrics and files."""
        return loopback(self.listen.http, "listen.http")

    @property
    def doors(self) -> list[str]:
        """The fields of `listen` at which this daemon listens."""
        exchange = [] if self.alone else ["exchange"]
        return ["http", *(["grpc"] if "api" in self.roles else []), *exchange]

    def door(self, name: str) -> Address:
        """Return the address of one of them."""
        return _address(getattr(self.listen, name), f"listen.{name}")

    def with_doors(self, grpc: str, http: str) -> DaemonSettings:
        """Return the same settings, with other addresses for clients."""
        listen = msgspec.structs.replace(self.listen, grpc=grpc, http=http)
        return msgspec.structs.replace(self, listen=listen)


def read_settings(path: Path, roles: str | None = None) -> DaemonSettings:
    """Read the settings of a file; `roles`, with commas between them, replaces those in it."""
    raw = read_yaml(path, "--config")
    if roles is not None and isinstance(raw, dict):
        raw = raw | {"roles": [role.strip() for role in roles.split(",") if role.strip()]}
    try:
        return parse(raw, path.parent)
    except BadSetting as error:
        raise BadSetting(*(f"{path}: {text}" for text in with_lines(path, error.texts))) from error


def parse(raw: Any, folder: Path) -> DaemonSettings:
    """Return the settings of a parsed file.

    Raises BadSetting with all problems, or with the first of the file's form.
    """

    def path(kind: type, value: Any) -> Any:
        if kind is Path and isinstance(value, str) and value:
            try:
                return folder / Path(value).expanduser()
            except RuntimeError as error:  # ~ of a user that does not exist
                raise ValueError(f"Expected a path, got {value!r}: {error}") from None
        raise ValueError(f"Expected a path, got {value!r}")

    found = mistyped.converted(raw, DaemonSettings, dec_hook=path)
    checks = (_names, _stores, _servers, _addresses, _backend, _folders, _numbers)
    texts = [text for check in checks for text in check(found)]
    if texts:
        raise BadSetting(*texts)
    if found.access.audit_folder is None and found.journal.sqlite is None:
        access = msgspec.structs.replace(found.access, audit_folder=folder / "audit")
        found = msgspec.structs.replace(found, access=access)
    return found


# ---- validation: each check reports all problems that it finds ----


def _names(found: DaemonSettings) -> Iterator[str]:
    if not found.cluster or not found.cluster.replace("-", "").replace("_", "").isalnum():
        yield f"cluster: {found.cluster!r} is not a name (letters, digits, - and _)"
    if not found.roles:
        yield f"roles: must not be empty; there are {', '.join(ROLES)}"
    for number, role in enumerate(found.roles):
        if role not in ROLES:
            yield f"roles[{number}]: {role!r} must be one of {', '.join(ROLES)}"
        elif role in found.roles[:number]:
            yield f"roles[{number}]: duplicate role {role!r}"


def _stores(found: DaemonSettings) -> Iterator[str]:
    journal = found.journal
    if (journal.sqlite is None) == (journal.cassandra is None):
        yield "journal: give one of sqlite and cassandra"
    elif journal.sqlite is not None and found.zookeeper is not None:
        yield "journal.sqlite: other daemons cannot read it; with zookeeper use journal.cassandra"
    elif journal.cassandra is not None and found.zookeeper is None:
        yield "zookeeper: required with journal.cassandra"
    missing = [role for role in ROLES if role not in found.roles]
    if found.alone and missing:
        yield f"roles: missing {', '.join(missing)}; a daemon without zookeeper needs all roles"


def _servers(found: DaemonSettings) -> Iterator[str]:
    cassandra, zookeeper = found.journal.cassandra, found.zookeeper
    if cassandra is not None:
        yield from _listed("journal.cassandra.contacts", cassandra.contacts)
    if zookeeper is not None:
        yield from _listed("zookeeper.hosts", zookeeper.hosts)
        for number, server in enumerate(zookeeper.hosts):
            if server and SERVER.fullmatch(server) is None:
                yield f"zookeeper.hosts[{number}]: {server!r} is not HOST:PORT"
        if not zookeeper.root.startswith("/"):
            yield f"zookeeper.root: {zookeeper.root!r} must begin with /"


def _listed(field: str, servers: list[str]) -> Iterator[str]:
    if not servers:
        yield f"{field}: must not be empty"
    for number, server in enumerate(servers):
        if not server:
            yield f"{field}[{number}]: must not be empty"
        elif server in servers[:number]:
            yield f"{field}[{number}]: duplicate server {server!r}"


def _addresses(found: DaemonSettings) -> Iterator[str]:
    listen, known = found.listen, {}
    for field, read_ in (("grpc", ip_address), ("http", loopback), ("exchange", _address)):
        try:
            known[field] = read_(getattr(listen, field), f"listen.{field}")
        except BadSetting as error:
            yield from error.texts
    exchange = known.get("exchange")
    if listen.advertise:
        try:
            advertised = _address(listen.advertise, "listen.advertise")
        except BadSetting as error:
            yield from error.texts
        else:
            if not advertised.port:
                yield f"listen.advertise: port must not be 0 ({advertised.host}:0)"
    elif exchange is not None and is_any(exchange.host) and not found.alone:
        what = f"peers cannot dial {exchange.host}; give an address of this machine"
        yield f"listen.advertise: {what}"
    if exchange is not None and found.tls is None and not found.alone:
        try:
            loopback(listen.exchange, "listen.exchange")
        except BadSetting as error:
            yield from error.texts
    yield from _for_clients(found, known.get("grpc"))
    used = found.doors
    names = [name for name in used if name in known]
    for number, name in enumerate(names):
        for other in names[:number]:
            if same_port(known[name], known[other]):
                yield f"listen.{name}: {known[name]} is listen.{other} as well"


def _for_clients(found: DaemonSettings, grpc: Address | None) -> Iterator[str]:
    yield from found.callers.problems()
    yield from found.access.problems()
    if grpc is not None:
        yield from found.callers.problems_of(grpc, "listen.grpc")
        if is_any(grpc.host) and not found.alone:
            what = f"clients cannot dial {grpc.host}, which ZooKeeper would tell them"
            yield f"listen.grpc: {what}; give an address of this machine"


def _address(text: str, field: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit()):
        raise BadSetting(f"{field}: {text!r} is not HOST:PORT")
    if int(port) > PORT_MAX:
        raise BadSetting(f"{field}: port {port} is not between 0 and {PORT_MAX}")
    return Address(host.strip("[]"), int(port))


def _backend(found: DaemonSettings) -> Iterator[str]:
    backend = found.backend
    if len(backend.given) > 1:
        yield f"backend: give one of {' and '.join(backend.given)}"
    if backend.mesos is not None:
        yield from mesos_problems(backend.clusters)
    if backend.hosts:
        yield from (f"backend.{backend.name}.{text}" for text in host_problems(backend.hosts))
    elif "hostmgr" in found.roles and backend.mesos is None:
        # Without a backend its hosts could never run anything.
        yield "backend: a daemon with role hostmgr needs one, with hosts"
    if backend.simulated is not None and not 0 <= backend.simulated.duration_s < 1e9:
        yield f"backend.simulated.duration_s: must be ≥ 0, got {backend.simulated.duration_s}"


def _folders(found: DaemonSettings) -> Iterator[str]:
    """Yield folders that are used twice: journal and keeper each want one alone."""
    sqlite, process = found.journal.sqlite, found.backend.process
    if sqlite is None or process is None:
        return
    journal, keeper = _real(sqlite.folder), _real(process.folder)
    if journal == keeper:
        yield f"backend.process.folder: {process.folder} is journal.sqlite.folder as well"
    elif keeper in journal.parents:
        # A keeper's folder may be moved aside as a whole, with all that is in it.
        text = f"{sqlite.folder} is inside of backend.process.folder"
        yield f"journal.sqlite.folder: {text}, {process.folder}"


def _real(folder: Path) -> Path:
    try:
        return folder.resolve()
    except (OSError, RuntimeError):  # such as a circle of links: the start names it
        return folder.absolute()


def _numbers(found: DaemonSettings) -> Iterator[str]:
    for group, count in sorted(found.shards.items()):
        if group not in GROUP_NAMES:
            yield f"shards.{group}: there are {', '.join(GROUP_NAMES)}"
        else:
            yield from _between(count, f"shards.{group}", least=1, most=SHARDS_MAX)
    yield from limit_problems(found.limits)
    yield from archive_problems(found.archive)
    yield from preemption_problems(found.preemption)
    yield from placement_problems(found.placement)
    yield from notify_problems(found.notify)
    if found.backend.process is not None:
        yield from _process(found.backend.process)
    if found.zookeeper is not None:
        timeout_s, name = found.zookeeper.session_timeout_s, "zookeeper.session_timeout_s"
        yield from _between(timeout_s, name, least=SESSION_S_MIN, most=SESSION_S_MAX)
    if found.journal.cassandra is not None:
        port = found.journal.cassandra.port
        yield from _between(port, "journal.cassandra.port", least=1, most=PORT_MAX)


def _process(found: ProcessBackendSettings) -> Iterator[str]:
    field = "backend.process"
    for name, most in (
        ("keep_sandboxes", SANDBOXES_KEPT_MAX),
        ("keep_sandboxes_mb", SANDBOXES_KEPT_MB_MAX),
        ("keep_sandboxes_free_mb", SANDBOXES_KEPT_MB_MAX),
        ("task_pids", TASK_PIDS_MAX),
    ):
        yield from _between(getattr(found, name), f"{field}.{name}", least=0, most=most)
    try:
        _ = found.keep_sandboxes_s
    except ValueError as error:
        yield f"{field}.keep_sandboxes_for: {error}"
    for name, known in (("limits", LIMITS_MODES), ("images", IMAGES_MODES)):
        value = getattr(found, name)
        if value not in known:
            yield f"{field}.{name}: {value!r} is none of {', '.join(known)}"


def _between(number: float, field: str, *, least: float, most: float) -> Iterator[str]:
    if not least <= number <= most:
        yield f"{field}: {number} is not between {least:g} and {most:g}"
