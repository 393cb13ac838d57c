"""The files of one user: which entries count, and which files with secrets are read."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.sdk.credentials import Credentials, Login, Routes, login_of
from peloton.sdk.errors import BadSpec, Denied
from peloton.settings import access_files
from peloton.settings.access_files import ENTRIES, BadSecretFile, ClusterEntry

ADDRESS = "127.0.0.1:5397"
NOBODY_UID = 65534
as_root = pytest.mark.needs_root("to start it as another user")


def own_entry() -> ClusterEntry:
    return access_files.entry_for(ADDRESS, token_file="/x/token", socket="")


def written(folder: Path, text: str) -> ClusterEntry | None:
    """The entry that is found once the file of its address has this text."""
    access_files.publish([own_entry()], folder)
    (folder / ENTRIES / ADDRESS).write_text(text)
    return access_files.entry_of(ADDRESS, folder)


# ---- entries ----


@as_root
def test_an_entry_of_another_users_process_does_not_count(tmp_path: Path) -> None:
    """Of one that got the pid, and says to be born at the same time."""
    with (
        subprocess.Popen(["sleep", "600"], user=NOBODY_UID, group=NOBODY_UID) as other,
        contextlib.ExitStack() as at_end,
    ):
        at_end.callback(other.kill)
        entry = own_entry()._replace(pid=other.pid, born=access_files.birth_of(other.pid))
        assert written(tmp_path, json.dumps(own_entry()._asdict())) == own_entry()
        assert written(tmp_path, json.dumps(entry._asdict())) is None


def test_an_entry_counts_until_the_machine_starts_again(tmp_path: Path) -> None:
    entry = own_entry()
    assert entry.boot_id and entry.lives
    for boot_id in ("", "7b1c0ac3-5f1f-4b8e-a7a2-0c6e1ad1ce5d"):
        earlier = entry._replace(boot_id=boot_id)
        assert written(tmp_path, json.dumps(earlier._asdict())) is None
    old = entry._asdict()
    del old["boot_id"]
    assert written(tmp_path, json.dumps(old)) is None, "of a version that did not write it"
    access_files.publish([], tmp_path)
    assert not (tmp_path / ENTRIES / ADDRESS).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 1e999},
        {"pid": True},
        {"pid": "1"},
        {"born": 1},
        {"token_file": ["/x/token"]},
        {"token_file": "/x\0/token"},
        {"socket": None},
        {"address": {}},
    ],
)
def test_an_entry_with_a_field_of_a_wrong_type_does_not_count(
    tmp_path: Path, change: dict[str, object]
) -> None:
    known = own_entry()._asdict()
    assert written(tmp_path, json.dumps(known | {"of_later_versions": 1})) == own_entry()
    assert written(tmp_path, json.dumps(known | change)) is None
    assert written(tmp_path, json.dumps(known | {"pid": float(os.getpid())})) is None
    access_files.publish([], tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{}", "[" * 60_000, "\udcff"])
def test_a_file_that_is_no_entry_does_not_count(tmp_path: Path, text: str) -> None:
    assert written(tmp_path, json.dumps(own_entry()._asdict())) == own_entry()
    (tmp_path / ENTRIES / ADDRESS).write_bytes(text.encode(errors="surrogateescape"))
    assert access_files.entry_of(ADDRESS, tmp_path) is None


# ---- addresses ----


@pytest.mark.parametrize(
    "address",
    [
        "localhost:1",
        "localhost",
        "127.0.0.1:1",
        "127.0.0.5",
        "[::1]:1",
        "[::1]",
        "::1",
        "unix:/x:1",
    ],
)
def test_what_stays_on_this_machine(address: str) -> None:
    assert access_files.is_local(address)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "::1:5397",
            "0:0:0:0:0:0:0:1:5397",
            "[::1]x:1",
            "[::1]:1:2",
            "[::1",
            "::1]:1",
            "[[::1]]:1",
        ),
        *("127.0.0.1:1@x.org:2", "127.0.0.1.x.org:1", "localhost:1:2", "x.org", "[fe80::1]:1", ""),
        *("dns:127.0.0.1", "10.0.0.7:1", "[localhost]:1", "127.0.0.1]:1", ":1"),
    ],
)
def test_what_grpc_reads_as_another_machine(address: str, tmp_path: Path) -> None:
    assert not access_files.is_local(address)
    login = Credentials(login=Login("ann", "a-password"))
    with pytest.raises(Denied, match="in clear"):
        Routes(login).to(address)


@pytest.mark.parametrize("address", ["unix:/x:5397", "unix:5397", "127.0.0.1", "::1", "localhost:"])
def test_what_names_no_port_has_no_entry(address: str, tmp_path: Path) -> None:
    local = own_entry()._replace(address="localhost:5397")
    access_files.publish([own_entry(), local], tmp_path)
    assert access_files.entry_of(address, tmp_path) is None
    assert access_files.entry_of("127.0.0.5:5397", tmp_path) == local


# ---- folders ----


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("no_umask")
def test_folders_are_for_their_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    state = tmp_path / "home" / "state" / "peloton"
    access_files.publish([own_entry()], state)
    access_files.made_token(tmp_path / "new" / "folder" / "token")
    made = [state, state / ENTRIES, *state.parents, *(tmp_path / "new" / "folder" / "x").parents]
    assert {mode(path) for path in made if path.is_relative_to(tmp_path)} == {0o700}
    for folder in (state, state / ENTRIES):
        folder.chmod(0o777)
    access_files.publish([], state)
    assert (mode(state), mode(state / ENTRIES)) == (0o700, 0o700)


def test_the_token_of_a_fleet_lies_in_a_closed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = access_files.state_folder()
    folder.mkdir(mode=0o755)
    folder.chmod(0o777)
    access_files.made_token(folder / "token")
    assert mode(folder) == 0o700


def test_a_token_in_a_folder_that_all_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shared" / "token"
    access_files.made_token(file)
    file.parent.chmod(0o777)
    with pytest.raises(BadSecretFile, match="all users can write in its folder"):
        access_files.made_token(file)
    file.parent.chmod(0o1777)
    assert access_files.made_token(file) == access_files.read_token(file)


@as_root
def test_secrets_of_another_user_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "token"
    access_files.made_token(file)
    os.chown(file, NOBODY_UID, NOBODY_UID)
    with pytest.raises(BadSecretFile, match=rf"belongs to another user \(uid {NOBODY_UID}\)"):
        access_files.made_token(file)
    os.chown(file, 0, 0)
    os.chown(file.parent, NOBODY_UID, NOBODY_UID)
    with pytest.raises(BadSecretFile, match="its folder belongs to another user"):
        access_files.made_token(file)
    assert access_files.read_token(file), "the file itself is ours"


# ---- what is no file ----


@pytest.mark.timeout(60)
def test_a_pipe_is_refused_where_nobody_waits_for_a_writer(tmp_path: Path) -> None:
    for name in ("token", ADDRESS):
        os.mkfifo(tmp_path / name, mode=0o600)
    with pytest.raises(BadSecretFile, match="token: not a regular file"):
        access_files.made_token(tmp_path / "token")
    with pytest.raises(BadSecretFile, match="not a regular file"):
        access_files.read_secret_file(Path(os.devnull))
    with pytest.raises(BadSecretFile, match="directory"):
        access_files.read_secret_file(tmp_path)
    access_files.publish([], tmp_path)
    (tmp_path / ADDRESS).rename(tmp_path / ENTRIES / ADDRESS)
    assert access_files.entry_of(ADDRESS, tmp_path) is None


def test_a_password_may_come_through_a_pipe(tmp_path: Path) -> None:
    program = "print(credentials.login_of('ann', '/dev/stdin').password)"
    line = [sys.executable, "-c", f"from peloton.sdk import credentials; {program}"]
    done = subprocess.run(line, input="two words\nmore", capture_output=True, text=True, timeout=60)
    assert done.stdout == "two words\n", done.stderr
    ends = os.pipe()
    with open(ends[0], "rb"), open(ends[1], "wb") as writer:
        writer.write(b"from a shell")
        writer.close()
        assert login_of("ann", f"/dev/fd/{ends[0]}") == Login("ann", "from a shell")
    with pytest.raises(BadSpec, match="directory"):
        login_of("ann", str(tmp_path))
    password = tmp_path / "password"
    password.write_text("x")
    password.chmod(0o644)
    with pytest.raises(BadSpec, match="chmod 600"):
        login_of("ann", str(password))
