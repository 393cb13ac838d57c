"""Tokens of clusters, and the entries by which clients of the same user find them.

A daemon makes its token at its first start. While it runs, an entry for each address where it
listens tells the clients of its user which token file and which socket belong to that address.
Daemons and clients share this module, so it must not import any other part of Peloton: clients
would load it.

An entry counts only while its process lives, known by pid and time of birth, and is withdrawn
before that process stops to listen: so no other user's program gets the token at that address.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

FOLDER_MODE, FILE_MODE = 0o700, 0o600
TOKEN_BYTES = 32
TOKEN_LENGTH_MIN, TOKEN_LENGTH_MAX = 20, 1024
TOKENS_MAX = 2
SECRET_BYTES_MAX, ENTRY_BYTES_MAX = 1 << 20, 1 << 16
SOCKET_PATH_BYTES_MAX = 107
"""The kernel's limit for the path of a Unix socket, without its final zero."""
UNIX = "unix:"
LOCALHOST = "localhost"
ENTRIES, FLEET_TOKEN = "clusters", "token"
ROOT_UID = 0
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[0-9A-Za-z_.-]+)?)\](?::([^:]*))?")
_OTHERS, _GROUP_WRITES = 0o007, 0o020


class BadSecretFile(Exception):
    """A file with secrets that cannot be used; the text names the file and the reason."""


class ClusterEntry(NamedTuple):
    """The data of a daemon for its user's clients, about one address.

    `space` is the pid namespace: a container may share the folder, and its pids are other ones.
    Times of birth are counted from the start of the machine, which `boot_id` names.
    """

    address: str
    pid: int
    born: str
    token_file: str = ""
    socket: str = ""
    space: str = ""
    boot_id: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether the writer of the entry can be seen from here, if it lives."""
        return self.space == pid_space()

    @property
    def lives(self) -> bool:
        """Whether the daemon that wrote this is still running."""
        if not self.is_ours or not self.boot_id or self.boot_id != boot_id():
            return False
        return bool(self.born) and birth_of(self.pid) == self.born and _is_trusted(self.pid)


def state_folder() -> Path:
    """Return the folder of such files for the user of this process."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # A relative path there is to be ignored, by the specification.
    home = os.path.expanduser("~")
    if base.startswith("/"):
        return Path(base) / "peloton"
    # Without a home there is no such folder: below a file there is nothing, ever.
    return Path(home if home.startswith("/") else os.devnull) / ".local" / "state" / "peloton"


# ---- secrets ----


def read_secret_file(path: Path, *, pipes: bool = False) -> str:
    """Return the text of a file with secrets, which other users must not be able to read or change.

    `pipes`: the path may also be a pipe or a terminal, which a person has named. Raises
    BadSecretFile.
    """
    try:
        with _opened(path, pipes=pipes) as file:
            found = os.fstat(file.fileno())
            if not (pipes and (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode))):
                _refuse_open(path, found)
            data = file.read(SECRET_BYTES_MAX)
    except OSError as error:
        raise BadSecretFile(f"{path}: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadSecretFile(f"{path}: no text in UTF-8") from None


def _opened(path: Path, *, pipes: bool = False) -> BinaryIO:
    """Open a file, without waiting for one that is no regular file, unless `pipes`."""
    more = 0 if pipes else os.O_NONBLOCK
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | more))


def _refuse_open(path: Path, found: os.stat_result) -> None:
    """Raise BadSecretFile if the path is no file, or one that others may read or have written."""
    if not stat.S_ISREG(found.st_mode):
        raise BadSecretFile(f"{path}: not a regular file")
    if found.st_uid not in (os.geteuid(), ROOT_UID):
        raise BadSecretFile(
            f"{path} holds secrets, and belongs to another user (uid {found.st_uid}), who can "
            "change it: name a copy of your own"
        )
    text = _exposed(path, found)
    if text:
        raise BadSecretFile(text)


def exposed(path: Path) -> str:
    """Return how other users can open a file with secrets; empty if they cannot. Raises OSError."""
    return _exposed(path, path.stat())


def _exposed(path: Path, found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & (_OTHERS | _GROUP_WRITES):
        return ""
    mode = stat.S_IMODE(found.st_mode)
    return f"{path} holds secrets, and other users can open it (mode {mode:04o}): chmod 600 it"


def read_token(path: Path) -> str:
    """Return the first token in a file, which clients show. Raises BadSecretFile."""
    return read_tokens(path)[0]


def read_tokens(path: Path) -> tuple[str, ...]:
    """Return the tokens in a file, one a line; two while the first takes the place of the other.

    Raises BadSecretFile.
    """
    tokens = tuple(filter(None, (line.strip() for line in read_secret_file(path).splitlines())))
    if len(tokens) > TOKENS_MAX:
        raise BadSecretFile(f"{path}: {len(tokens)} tokens, there may be {TOKENS_MAX}")
    return tuple(_checked_token(path, token) for token in tokens or ("",))


def _checked_token(path: Path, token: str) -> str:
    if not TOKEN_LENGTH_MIN <= len(token) <= TOKEN_LENGTH_MAX:
        span = f"{TOKEN_LENGTH_MIN} to {TOKEN_LENGTH_MAX}"
        raise BadSecretFile(f"{path}: a token has {span} characters, this has {len(token)}")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadSecretFile(f"{path}: a token is one word of printable ASCII characters")
    return token


def made_token(path: Path) -> str:
    """Return the token in a file, made with its folder if missing. Raises BadSecretFile."""
    try:
        if path.parent == state_folder():
            _private_folder(path.parent)
        else:
            _make_folder(path.parent)
            _refuse_shared(path.parent)
        if not path.exists():
            _write_new(path, secrets.token_urlsafe(TOKEN_BYTES) + "\n")
    except OSError as error:
        raise BadSecretFile(f"{path}: {error.strerror}") from error
    return read_token(path)


def _write_new(path: Path, text: str) -> None:
    """Write a new file, whole or not at all; of several daemons that make it at once one wins."""
    draft = _draft(path, text)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _draft(path: Path, text: str) -> str:
    """Write a new file beside the path that only its user can open; return its name."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    return name


def _make_folder(path: Path) -> None:
    """Make a folder with its missing parents, all for our user alone."""
    if not path.exists():
        _make_folder(path.parent)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def _refuse_shared(path: Path) -> None:
    """Refuse a folder in which other users may replace files. Raises PermissionError."""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), ROOT_UID):
        raise PermissionError(errno.EPERM, "its folder belongs to another user")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "all users can write in its folder: chmod o-w that")


def _private_folder(path: Path) -> None:
    """Make a folder of Peloton's own, or close it to others. Raises PermissionError."""
    _make_folder(path)
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "its folder belongs to another user")
    if stat.S_IMODE(found.st_mode) != FOLDER_MODE:
        os.chmod(path, FOLDER_MODE)


# ---- entries ----


def publish(entries: Sequence[ClusterEntry], folder: Path | None = None) -> None:
    """Write the entries, and remove those of daemons that have ended. Raises OSError."""
    at = (folder or state_folder()) / ENTRIES
    _private_folder(at.parent)
    _private_folder(at)
    for name in os.listdir(at):
        found = None if name.startswith(".") else _read(at / name)
        if found is not None and found.is_ours and not found.lives:
            (at / name).unlink(missing_ok=True)
    for entry in entries:
        os.replace(_draft(at / entry.address, json.dumps(entry._asdict())), at / entry.address)


def withdraw(entries: Sequence[ClusterEntry], folder: Path | None = None) -> None:
    """Remove these entries, unless another daemon has written its own over them."""
    at = (folder or state_folder()) / ENTRIES
    for entry in entries:
        if _read(at / entry.address) == entry:
            (at / entry.address).unlink(missing_ok=True)


def entry_for(address: str, *, token_file: str, socket: str) -> ClusterEntry:
    """Return the entry of this process."""
    pid = os.getpid()
    born, space = birth_of(pid), pid_space()
    return ClusterEntry(address, pid, born, token_file, socket, space, boot_id())


def entry_of(address: str, folder: Path | None = None) -> ClusterEntry | None:
    """Return the entry of the living daemon at this address, if it is one of our user."""
    at = (folder or state_folder()) / ENTRIES
    for name in _names(address):
        found = _read(at / name)
        if found is not None and found.address == name and found.lives:
            return found
    return None


def is_published(entry: ClusterEntry, folder: Path | None = None) -> bool:
    """Return whether the daemon that wrote this still runs, and has not withdrawn it.

    It is called before each call, so the file is not read: another entry at this address is one of
    a daemon of the same user, which refuses the token of this one.
    """
    at = os.path.join(folder or state_folder(), ENTRIES, entry.address)
    return os.path.exists(at) and entry.lives


def is_local(address: str) -> bool:
    """Return whether bytes sent to the address stay on this machine, as gRPC reads it."""
    if _is_socket(address):
        return True
    host, _ = _split(address)
    try:
        return host == LOCALHOST or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def socket_target(path: str | Path) -> str:
    """Return the address of a Unix socket, for gRPC, which decodes it like the path of a URL."""
    return UNIX + quote(os.fsencode(path))


def birth_of(pid: int) -> str:
    """Return a process's time of birth, by which pids are unique; empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program, in parentheses, may hold spaces.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    # A zombie has ended, and holds no address.
    return fields[19].decode() if len(fields) > 19 and fields[0] not in (b"Z", b"X") else ""


def pid_space() -> str:
    """Return the pid namespace of this container or machine; empty if it is unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the id of this boot of the machine; empty if it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _is_trusted(pid: int) -> bool:
    """Return whether the process is one of our user, or of root."""
    try:
        return os.stat(f"/proc/{pid}").st_uid in (os.geteuid(), ROOT_UID)
    except OSError:
        return False


def _is_socket(address: str) -> bool:
    return address.startswith((UNIX, "unix-abstract:"))


def _split(address: str) -> tuple[str, str]:
    """Return host and port, which may be empty; two empty texts for what gRPC reads in another way.

    IPv6 with a port has brackets; without them all of it is the host.
    """
    if address.startswith("["):
        found = _BRACKETED.fullmatch(address)
        return (found[1], found[2] or "") if found is not None else ("", "")
    if address.count(":") > 1:
        return address, ""
    host, _, port = address.partition(":")
    return host, port


def _names(address: str) -> list[str]:
    """Return the addresses by which a daemon may have named this one."""
    if _is_socket(address) or not is_local(address):
        return []
    host, port = _split(address)
    if not port.isascii() or not port.isdigit():
        return []
    others = {LOCALHOST: ("127.0.0.1", "[::1]")}.get(host, (LOCALHOST,))
    return [address, *(f"{other}:{port}" for other in others)]


def _read(path: Path) -> ClusterEntry | None:
    """Read an entry; None if there is no readable one, or others may have written it."""
    try:
        with _opened(path) as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid():
                return None
            _refuse_open(path, found)
            raw: Any = json.loads(file.read(ENTRY_BYTES_MAX))
    except (OSError, BadSecretFile, ValueError, RecursionError):
        return None
    return _parsed(raw)


def _parsed(raw: Any) -> ClusterEntry | None:
    """Parse an entry without unknown fields; None if a field has a wrong type."""
    if not isinstance(raw, dict) or not {"address", "pid", "born"} <= raw.keys():
        return None
    given = {name: raw[name] for name in ClusterEntry._fields if name in raw}
    pid = given.pop("pid")
    if type(pid) is not int or not all(isinstance(one, str) for one in given.values()):
        return None
    if any("\0" in one for one in given.values()):  # no path has it
        return None
    return ClusterEntry(pid=pid, **given)
