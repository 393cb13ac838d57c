"""Checks what would prevent the start of a daemon or a minicluster, without starting it.

Turns valid settings into problems of the machine: ports, files, folders, packages, servers. Every
problem names its setting. Nothing is written or kept open; a start checks all of it again, because
the machine changes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from peloton import missing_package
from peloton.assembly import access, exchange, mesos_access, task_images, task_limits
from peloton.assembly.extensions import extension_problems
from peloton.assembly.folders import behind_text, witness_options
from peloton.assembly.listeners import why_not
from peloton.assembly.port_holder import command_of, port_holder
from peloton.assembly.secrets import key_problems
from peloton.assembly.servers import open_cassandra
from peloton.assembly.strategies import strategy_problems
from peloton.assembly.task_accounts import problem
from peloton.failures import CannotStart
from peloton.processes import preflight_cluster, preflight_exchange
from peloton.processes.preflight_cluster import UNREAD, JournalFound, ServersRead
from peloton.runtime.adapters import claimed_folder, folder_origin
from peloton.runtime.adapters.data_folder import locked_by_others_only
from peloton.runtime.adapters.fenced_rows import read_record
from peloton.runtime.adapters.private_folder import FolderOfAnother
from peloton.runtime.adapters.sqlite_witness import JournalWitness
from peloton.runtime.ports import JournalError, MemberNode, RolledBack
from peloton.sdk.errors import PelotonError
from peloton.sdk.zookeeper import reading
from peloton.settings.certificate_dates import dates_of, texts_now
from peloton.settings.changes import certificate_files
from peloton.settings.config import Address
from peloton.settings.daemon import Cassandra, DaemonSettings, Zookeeper
from peloton.settings.start_options import STANDARD_START, StartOptions

SERVERS_S_MAX = 3.0


def of_daemon(
    settings: DaemonSettings, options: StartOptions = STANDARD_START, *, running: int = 0
) -> list[str]:
    """Return all problems; empty if the daemon could start now. Busy classic ports are none.

    What the process `running` holds is free once it has ended, and no problem.
    """
    # Two settings of a file may be one option of a command.
    return [*dict.fromkeys(_daemon(settings, options, running=running))]


def soon_over(settings: DaemonSettings) -> list[str]:
    """Return warnings about certificates that end soon; no problem of a start."""
    return texts_now(dates_of(certificate_files(settings)), good=True)


def running_daemon(settings: DaemonSettings) -> int:
    """Return the pid of the daemon on the data folder of these settings; 0 if there is none."""
    if settings.journal.sqlite is None:
        return 0
    try:
        pid = _holder(settings.journal.sqlite.folder)
    except OSError:
        return 0
    return int(pid) if pid.isdigit() and command_of(int(pid)) == "daemon" else 0


def _daemon(settings: DaemonSettings, options: StartOptions, *, running: int) -> Iterator[str]:
    names = options.names
    for name in settings.doors:
        address = settings.door(name)
        holder = port_holder(address) if running and address.port else None
        if holder is None or holder.pid != running:
            yield from _port(names.listener(name), address, remedy=names.other_ports)
    if settings.tls is not None:
        yield from exchange.problems(settings.tls)
    yield from access.problems(settings)
    yield from key_problems(settings)
    yield from texts_now(dates_of(certificate_files(settings)), good=False)
    yield from strategy_problems(settings)
    yield from extension_problems()
    yield from mesos_access.problems(settings.backend)
    if settings.journal.sqlite is not None:
        folder = settings.journal.sqlite.folder
        yield from _folder(names.data_folder, folder)
        if not running:
            yield from _data_folder(names.data_folder, folder)
        if not options.fresh:
            yield from _maker(settings, options)
            copied = [*_origin(names.data_folder, folder, options=options)]
            yield from copied
            # Neither is that of another journal, nor one that is being written.
            if not copied and not options.adopt_copy and not running:
                yield from _witness(settings, options)
    if settings.backend.process is not None and "hostmgr" in settings.roles:
        folder = settings.backend.process.folder
        yield from _folder(names.keeper_folder, folder)
        if not options.fresh:
            yield from _origin(names.keeper_folder, folder, options=options)
        checks = (task_limits.problem(settings), task_images.problem(settings))
        yield from filter(None, (problem(settings, names), *checks))
    servers = ServersRead()
    if settings.journal.cassandra is not None:
        journal = yield from _cassandra(settings.journal.cassandra)
        servers = servers._replace(journal=journal)
    if settings.zookeeper is not None:
        mark, members = yield from _zookeeper(settings, settings.zookeeper)
        servers = servers._replace(mark=mark)
        yield from preflight_exchange.problems(settings, members)
    yield from preflight_cluster.problems(settings, options, servers=servers)


# ---- what there is on this machine ----


def _port(setting: str, address: Address, *, remedy: str) -> Iterator[str]:
    why = why_not(address) if address.port else ""
    if why:
        yield f"{setting}: {address} {why}. {remedy}"


def _folder(setting: str, folder: Path) -> Iterator[str]:
    """Yield why the folder, or the one in which it would be made, cannot be written to."""
    found = folder.absolute()
    try:
        while not os.path.lexists(found) and found != found.parent:
            found = found.parent
        if not found.is_dir():
            yield f"{setting}: {found} is not a folder"
        elif not os.access(found, os.W_OK | os.X_OK) or _is_kernels(found):
            yield f"{setting}: {found} is not writable"
        elif found == folder.absolute() and found.stat().st_uid != os.geteuid():
            yield f"{setting}: {found}: {_why(FolderOfAnother(found.stat().st_uid))}"
    except OSError as error:
        yield f"{setting}: {folder}: {_why(error)}"


def _is_kernels(folder: Path) -> bool:
    """Return whether the folder is read-only or the kernel's, though root seems permitted."""
    read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return read_only or folder.is_relative_to("/proc") or folder.is_relative_to("/sys")


def _data_folder(setting: str, folder: Path) -> Iterator[str]:
    try:
        claimed_folder.check_ours(folder)
        pid = _holder(folder)
        if pid:
            yield f"{setting}: {folder} is in use by the process with pid {pid}"
    except claimed_folder.ForeignFolder as error:
        yield f"{setting}: {error}"
    except OSError as error:
        yield f"{setting}: {folder}: {_why(error)}"


def _holder(folder: Path) -> str:
    """Return the pid of the process that holds the folder, or `unknown`; empty if none does."""
    lock = folder / claimed_folder.LOCK
    if not lock.is_file():
        return ""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if locked_by_others_only(os.fstat(file.fileno()).st_ino):
                return ""
            return file.read(32).decode("ascii", "replace").strip() or "unknown"
    return ""


def _origin(setting: str, folder: Path, *, options: StartOptions) -> Iterator[str]:
    """Yield a problem if the folder is a copy, which is not started as if it were the original."""
    try:
        found = folder_origin.examine(folder)
    except OSError as error:
        yield f"{setting}: {folder}: {_why(error)}"
    else:
        if found.kind is folder_origin.FolderKind.COPY and not options.adopt_copy:
            yield f"{setting}: {found.text}. {options.names.copied}"


def _maker(settings: DaemonSettings, options: StartOptions) -> Iterator[str]:
    """Yield a problem if the data folder was created with another backend."""
    assert settings.journal.sqlite is not None
    folder, names = settings.journal.sqlite.folder, options.names
    try:
        known = claimed_folder.maker_of(folder)
    except (OSError, UnicodeDecodeError) as error:
        yield f"{names.data_folder}: {folder / claimed_folder.MAKER}: {_why(error)}"
    else:
        if known and known != settings.backend.name:
            yield f"{names.backend}: {folder} belongs to the {known} backend"


def _witness(settings: DaemonSettings, options: StartOptions) -> Iterator[str]:
    """Yield a problem if the journal lacks what it had acknowledged."""
    assert settings.journal.sqlite is not None
    path = settings.journal.sqlite.folder / claimed_folder.JOURNAL
    try:
        JournalWitness(path, witness_options(settings, options, report=lambda line: None))
    except RolledBack as error:
        yield f"{options.names.data_folder}: {behind_text(error, options.names)}"
    except (CannotStart, JournalError) as error:
        yield f"{options.names.data_folder}: {error}"


# ---- servers ----


def _cassandra(setting: Cassandra) -> Generator[str, None, JournalFound]:
    missing = []
    if setting.ca_file is not None:
        missing += exchange.unreadable("journal.cassandra.ca_file", setting.ca_file)
    if setting.password_file is not None:
        missing += exchange.unreadable("journal.cassandra.password_file", setting.password_file)
    if not _has("cassandra"):
        missing.append(f"journal.cassandra: {missing_package('cassandra-driver')}")
    yield from missing
    if missing:
        return UNREAD
    try:
        with closing(open_cassandra(setting, connect_s=SERVERS_S_MAX)) as journal:
            return JournalFound(True, read_record(journal.rows))
    except CannotStart as error:
        yield str(error)
    except JournalError as error:
        yield f"journal.cassandra: {error}"
    return UNREAD


def _zookeeper(
    settings: DaemonSettings, setting: Zookeeper
) -> Generator[str, None, tuple[bytes | None, dict[str, MemberNode]]]:
    """Yield problems; return the root's mark, and the members that are up."""
    if not _has("kazoo"):
        yield f"zookeeper: {missing_package('kazoo')}"
        return None, {}
    from peloton.runtime.adapters.zookeeper_nodes import Paths, member_of

    paths = Paths(settings.cluster, root=setting.root.rstrip("/"))
    try:
        with reading(setting.hosts, timeout_s=SERVERS_S_MAX) as nodes:
            found, mark = nodes.children(paths.members), nodes.data(paths.mark)
    except PelotonError as error:
        yield f"zookeeper.hosts: {error}"
        return None, {}
    # Two daemons that peers dial at one address: each gets what is meant for the other.
    field = "advertise" if settings.listen.advertise else "exchange"
    address = getattr(settings.listen, field)
    read = {name: member_of(data) for name, data in sorted(found.items())}
    members = {name: node for name, node in read.items() if node is not None}
    for name, node in members.items():
        if node.address == address:
            yield f"listen.{field}: {address} is that of the member {name}, which is running"
    return mark, members


def _has(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "no text in UTF-8"
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or error)
