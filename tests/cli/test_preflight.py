"""`--check`: all that would keep a process from starting, at once, each named by its setting.

The servers that are looked for are mostly not there; one test has a ZooKeeper.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from kazoo.client import KazooClient

from peloton import INSTALL_FLEET
from peloton.assembly.daemon import Daemon
from peloton.backends import keeper_folder
from peloton.backends.keeper_folder import KeeperOwner
from peloton.failures import CannotStart
from peloton.processes.preflight import of_daemon, soon_over
from peloton.runtime.adapters import folder_origin
from peloton.runtime.adapters.data_folder import DataFolder
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.zookeeper_nodes import member_bytes
from peloton.runtime.ports import ClusterRecord, MemberNode
from peloton.settings.config import BadSetting
from peloton.settings.daemon import parse
from tests.adapters.cassandra import cql_stub
from tests.adapters.pems import Authority
from tests.cli.terminal import Printed, typed
from tests.cli.test_one_line import one_after_the_other
from tests.servers import connects, zookeeper
from tests.servers.process import free_ports

HOSTS = [{"name": "a"}]
PLACE = re.compile(r"line (\d+): (.*)")
NOBODY = "127.0.0.1:1"


@pytest.fixture
def busy() -> Iterator[int]:
    """A port at which somebody else listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def alone(**more: Any) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "cluster": "c",
        "journal": {"sqlite": {"folder": "data"}},
        "listen": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "backend": {"simulated": {"hosts": HOSTS}},
    }
    return raw | more


def fleet(**more: Any) -> dict[str, Any]:
    raw = alone()
    raw["listen"]["exchange"] = "127.0.0.1:0"
    raw["journal"] = {"cassandra": {"contacts": ["127.0.0.1"], "port": 1}}
    raw["zookeeper"] = {"hosts": [NOBODY]}
    return raw | more


def checked(raw: dict[str, Any], folder: Path, *options: str) -> Printed:
    file = folder / "daemon.yaml"
    file.write_text(yaml.safe_dump(raw))
    before = contents(folder)
    printed = typed("daemon", "--config", str(file), "--check", *options)
    assert contents(folder) == before, "nothing is written"
    return printed


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def test_a_daemon_that_could_start_is_no_finding(tmp_path: Path) -> None:
    printed = checked(alone(), tmp_path)
    assert (printed.code, printed.err) == (0, "")
    assert "cluster c" in printed.out


def test_all_mistakes_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    raw = fleet(roles=["api", "api", "foo", "jobmgr"], shards={"jobmgr": 0})
    raw["listen"] = {"grpc": "5", "http": "0.0.0.0:1"}
    raw["journal"]["cassandra"] = {"contacts": ["a", "a"]}
    raw["zookeeper"] = {"hosts": ["a b", ""], "session_timeout_s": 0.1}
    hosts = [{"name": "a", "cpus": -2}, {"name": "b"}, {"name": "a", "gpus": -1}]
    raw["backend"]["simulated"] = {"hosts": hosts, "duration_s": -1}
    printed = checked(raw, tmp_path)
    assert (printed.code, printed.out) == (64, "")
    lines = printed.err.splitlines()
    start = f"peloton daemon: {tmp_path / 'daemon.yaml'}: "
    assert all(line.startswith(start) for line in lines)
    fields = [line.removeprefix(start) for line in lines]
    written = (tmp_path / "daemon.yaml").read_text().splitlines()
    places = [PLACE.fullmatch(field) for field in fields]
    where = {place[2]: written[int(place[1]) - 1].strip() for place in places if place}
    assert len(where) == len(fields)
    cpus = "backend.simulated.hosts[0].cpus: must be ≥ 0 and finite, got -2.0"
    assert where[cpus] in ("cpus: -2", "- cpus: -2")
    fields = [*where]
    for wanted in (
        "roles[1]: duplicate role 'api'",
        "roles[2]: 'foo' must be one of",
        "listen.grpc: '5' is not HOST:PORT",
        "listen.http: 0.0.0.0 is not a loopback",
        "journal.cassandra.contacts[1]: duplicate server 'a'",
        "zookeeper.hosts[0]: 'a b' is not HOST:PORT",
        "zookeeper.hosts[1]: must not be empty",
        "zookeeper.session_timeout_s: 0.1 is not between",
        cpus,
        "backend.simulated.hosts[2].name: duplicate host 'a'",
        "backend.simulated.hosts[2].gpus: must be ≥ 0 and finite, got -1.0",
        "backend.simulated.duration_s: must be ≥ 0, got -1.0",
        "shards.jobmgr: 0 is not between",
    ):
        assert sum(field.startswith(wanted) for field in fields) == 1, (wanted, fields)
    assert len(fields) == 13, "and nothing that follows from another mistake"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"clutser": "x"}, "line 6: unknown field `clutser`, did you mean `cluster`?"),
        ({"listen": {"gprc": "x"}}, "listen: unknown field `gprc`, did you mean `grpc`?"),
        ({"backend": {"simulated": {"hosts": [{"nme": "b"}]}}},
         "backend.simulated.hosts[0]: unknown field `nme`, did you mean `name`?"),
        ({"journal": {"folder": "x"}}, "journal: unknown field `folder`, there are sqlite, cassa"),
        ({"backend": {"mesos": [{"mastre": "x"}]}},
         "backend.mesos[0]: unknown field `mastre`, did you mean `master`?"),
        ({"listen": {"grpc": 5}}, "listen.grpc: expected a text, got a whole number"),
        ({"shards": {"jobmgr": "x"}}, "shards[...]: expected a whole number, got a text"),
        ({"cluster": None}, "cluster: expected a text, got nothing"),
        ({"journal": {"sqlite": {}}}, "journal.sqlite: missing required field `folder`"),
        ({"journal": {"sqlite": {"folder": 5}}}, "journal.sqlite.folder: expected a path, got 5"),
    ],
)  # fmt: skip
def test_what_is_mistyped_is_named_with_what_was_meant(
    change: dict[str, Any], text: str, tmp_path: Path
) -> None:
    printed = checked(alone() | change, tmp_path)
    assert printed.code == 64
    (line,) = printed.err.splitlines()
    place = PLACE.fullmatch(line.removeprefix(f"peloton daemon: {tmp_path / 'daemon.yaml'}: "))
    assert place is not None and (place[0] if text.startswith("line") else place[2]).startswith(
        text
    )


@pytest.mark.parametrize("raw", [5, [], "x", None, {"listen": 5, "journal": [], "roles": 1}])
def test_files_of_other_shapes_end_in_complaints(raw: Any, tmp_path: Path) -> None:
    with pytest.raises(BadSetting) as seen:
        parse(raw, tmp_path)
    assert seen.value.texts


def test_equal_ports_are_named() -> None:
    raw = alone(listen={"grpc": "127.0.0.1:7000", "http": "localhost:7000"})
    with pytest.raises(BadSetting, match=r"^listen\.grpc: 127.0.0.1:7000 is listen\.http as well$"):
        parse(raw, Path("/"))
    raw["listen"]["exchange"] = "127.0.0.1:7001"
    raw["listen"]["http"] = "127.0.0.1:7001"
    assert parse(raw, Path("/")), "who is alone does not listen for others"
    with pytest.raises(BadSetting, match=r"listen\.exchange: .* is listen\.http as well"):
        parse(fleet(listen=raw["listen"]), Path("/"))


def test_busy_ports_are_named_by_their_settings(busy: int, tmp_path: Path) -> None:
    raw = fleet()
    raw["listen"]["http"] = f"127.0.0.1:{busy}"
    raw["listen"]["exchange"] = f"localhost:{busy}"
    with pytest.raises(BadSetting, match="as well"):
        parse(raw, tmp_path)
    raw = alone(listen={"grpc": f"127.0.0.1:{busy}", "http": "127.0.0.1:0"})
    printed = checked(raw, tmp_path)
    assert printed.code == 69
    assert f"listen.grpc: 127.0.0.1:{busy} is busy" in printed.err


def test_a_fleet_names_every_file_and_server_that_is_missing(tmp_path: Path) -> None:
    raw = fleet(tls={"ca": "no/ca.pem", "certificate": "no.pem", "key": "."})
    printed = checked(raw, tmp_path)
    assert printed.code == 69
    lines = printed.err.splitlines()
    assert len(lines) == 5, lines
    for line, wanted in zip(
        lines,
        [
            f"tls.ca: {tmp_path / 'no/ca.pem'}: No such file",
            f"tls.certificate: {tmp_path / 'no.pem'}: No such file",
            f"tls.key: {tmp_path}: Is a directory",
            "journal.cassandra: Cassandra at 127.0.0.1 port 1: ",
            f"zookeeper.hosts: ZooKeeper at {NOBODY}: connection refused",
        ],
        strict=True,
    ):
        assert wanted in line


def test_certificates_that_do_not_fit_are_named(tmp_path: Path) -> None:
    one, other = Authority(tmp_path / "one").issue("a"), Authority(tmp_path / "other").issue("b")
    files = {"ca": str(one.ca), "certificate": str(one.certificate), "key": str(other.key)}
    found = of_daemon(parse(fleet(tls=files), tmp_path))
    assert any(text.startswith("tls.certificate: ") and "MISMATCH" in text for text in found)
    (tmp_path / "junk").write_text("junk")
    found = of_daemon(parse(fleet(tls=files | {"ca": "junk"}), tmp_path))
    assert any(text.startswith(f"tls.ca: {tmp_path / 'junk'}: ") for text in found)


def test_a_certificate_that_has_expired_is_named_with_its_date(tmp_path: Path) -> None:
    made = Authority(tmp_path / "one").expired("a")
    files = {"ca": str(made.ca), "certificate": str(made.certificate), "key": str(made.key)}
    settings = parse(fleet(tls=files), tmp_path)
    wanted = f"tls.certificate: {made.certificate} expired on 2020-01-02 00:00 UTC"
    assert wanted in of_daemon(settings)
    assert soon_over(settings) == [], "what is over is a problem, not a warning"


def test_a_certificate_that_expires_soon_is_a_warning(tmp_path: Path) -> None:
    begun = datetime.now(UTC)
    made = Authority(tmp_path / "one").good_for_a_day("a", begun)
    files = {"ca": str(made.ca), "certificate": str(made.certificate), "key": str(made.key)}
    settings = parse(fleet(tls=files), tmp_path)
    (text,) = soon_over(settings)
    assert text.startswith(f"tls.certificate: {made.certificate} expires on ")
    assert text.endswith("in 1.0 days")
    assert not any("tls.certificate" in problem for problem in of_daemon(settings))


def test_password_and_ca_files_of_cassandra_are_looked_at(tmp_path: Path) -> None:
    raw = fleet()
    raw["journal"]["cassandra"] |= {"username": "a", "password_file": "no", "ca_file": "none"}
    found = of_daemon(parse(raw, tmp_path))
    assert any(text.startswith("journal.cassandra.password_file: ") for text in found)
    assert any(text.startswith("journal.cassandra.ca_file: ") for text in found)


@pytest.mark.parametrize("found", [0, 99])
def test_a_journal_of_another_format_in_cassandra_is_named(found: int, tmp_path: Path) -> None:
    raw = fleet()
    with cql_stub.running() as stub:
        stub.format = found
        raw["journal"]["cassandra"] |= {"port": stub.nodes[0].port}
        problems = of_daemon(parse(raw, tmp_path))
    assert any(
        text.startswith(f"journal.cassandra: the journal has format {found}") for text in problems
    )


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "photo.jpg").write_text("")
    held = DataFolder(tmp_path / "held")
    try:
        for folder, why in [
            ("file/x", f"{tmp_path / 'file'} is not a folder"),
            ("strange", "holds files that Peloton did not make"),
            ("held", f"is in use by the process with pid {os.getpid()}"),
            ("/proc/x", "/proc is not writable"),
        ]:
            printed = checked(alone(journal={"sqlite": {"folder": folder}}), tmp_path)
            assert printed.code == 69
            assert "journal.sqlite.folder: " in printed.err and why in printed.err, printed.err
        raw = alone(backend={"process": {"folder": "/proc/x", "hosts": HOSTS}})
        assert "backend.process.folder: /proc is not writable" in checked(raw, tmp_path).err
    finally:
        held.close()


def test_a_data_folder_of_another_backend_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mark = tmp_path / "data" / "backend"
    mark.write_text("process\n")
    printed = checked(alone(), tmp_path)
    text = f"backend: {tmp_path / 'data'} belongs to the process backend\n"
    assert (printed.code, printed.err.endswith(f": {text}")) == (69, True), printed.err
    options = ["--backend", "simulated", "--no-classic-ports", "--data-dir", str(tmp_path / "data")]
    options += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    printed = typed("minicluster", "--check", *options)
    assert (printed.code, printed.err) == (69, f"peloton minicluster: --{text}")
    assert typed("minicluster", "--check", "--fresh", *options).code == 0
    mark.write_bytes(b"\xff")
    printed = checked(alone(), tmp_path)
    assert f"journal.sqlite.folder: {mark}: no text in UTF-8" in printed.err


MISSING = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == PACKAGE:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize(
    ("package", "name", "field", "codes"),
    [
        (
            "cassandra", "cassandra-driver", "journal.cassandra",
            {"doctor": 69, "schema apply --replication dc1:1": 69},
        ),
        ("kazoo", "kazoo", "zookeeper", {"-z 127.0.0.1:1 -t 1s job query": 70}),
    ],
)  # fmt: skip
def test_a_missing_package_is_one_line(
    package: str, name: str, field: str, codes: dict[str, int], tmp_path: Path
) -> None:
    """In a process that does not have it."""
    file = tmp_path / "daemon.yaml"
    file.write_text(yaml.safe_dump(fleet()))
    check = f"daemon --check --config {file}"
    codes = codes | {f"daemon --config {file}": 69, check: 69}
    first = MISSING.replace("PACKAGE", repr(package))
    found = one_after_the_other([line.split() for line in codes], first=first)
    said = f"the package {name} is missing; {INSTALL_FLEET}"
    for line, (code, errors) in zip(codes, found, strict=True):
        assert code == codes[line], (line, errors)
        if line == check:
            (told,) = [one for one in errors.splitlines() if f"{field}: {said}" in one]
            assert "pip install" in told
        else:
            assert len(errors.splitlines()) == 1, errors
        if (package, line) != ("kazoo", f"daemon --config {file}"):  # Cassandra's server first
            assert len([text for text in errors.splitlines() if text.endswith(said)]) == 1, line


def test_a_minicluster_is_checked_alike(busy: int, tmp_path: Path) -> None:
    base = ["minicluster", "--check", "--no-classic-ports", "--data-dir"]
    good = typed(*base, str(tmp_path / "d"), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
    assert (good.code, good.err) == (0, "") and good.out.startswith("1 host (")
    assert not (tmp_path / "d").exists()
    there = f"127.0.0.1:{busy}"
    printed = typed(*base, "/proc/x", "--grpc", there, "--http", "127.0.0.1:0")
    assert printed.code == 69
    assert [line.split(": ")[1] for line in printed.err.splitlines()] == ["--grpc", "--data-dir"]
    file = tmp_path / "cluster.yaml"
    file.write_text("archive: {after: x}\nbackend: {process: {keep_sandboxes: -1}}")
    words = ("--grpc", there, "--http", there, "--host-cpus", "nan", "--cluster", str(file))
    printed = typed("minicluster", *words)
    assert printed.code == 64, "also without --check, before anything is opened"
    begin = f"peloton minicluster: --cluster: {file}: "
    found = [line.removeprefix(begin).split(": ") for line in printed.err.splitlines()]
    named = ["--grpc", "hosts[0].cpus", "archive.after", "backend.process.keep_sandboxes"]
    assert [one[1] if one[0].startswith("line ") else one[0] for one in found] == named
    assert ["line 2", named[3]] in [one[:2] for one in found]


def test_all_mistakes_of_a_cluster_file_are_named(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text("hosts: [{name: a, cpus: -1}, {name: a}, {name: b/c, gpus: -1}]")
    printed = typed("minicluster", "--cluster", str(file))
    assert printed.code == 64
    assert [line.split(": ")[4] for line in printed.err.splitlines()] == [
        "hosts[0].cpus",
        "hosts[1].name",
        "hosts[2].name",
        "hosts[2].gpus",
    ]


def with_keeper(**more: Any) -> dict[str, Any]:
    return alone(backend={"process": {"folder": "keeper", "hosts": HOSTS}}, **more)


def used(folder: Path, *, name: str = "c", level: int = 0, of: dict[str, Any]) -> ClusterRecord:
    """A journal as a daemon has left it in the data folder."""
    held = DataFolder(folder / "data")
    journal = SqliteJournal(held.journal_path)
    record = journal.bootstrap(parse(of, folder).sizes, name=name)
    journal.raise_level(level)
    journal.close()
    held.close()
    return record


def lines(printed: Printed) -> list[str]:
    return [line.split(": ", 2)[2] for line in printed.err.splitlines()]


def test_what_another_cluster_or_version_has_left_is_named(tmp_path: Path) -> None:
    raw = with_keeper()
    used(tmp_path, name="west", level=99, of=raw)
    keeper_folder.claim(tmp_path / "keeper", KeeperOwner("ff" * 16, "north"))
    printed = checked(raw, tmp_path)
    assert printed.code == 69
    name, level, keeper = lines(printed)
    assert name.startswith("journal.sqlite.folder: the journal belongs to cluster 'west'")
    text = "journal.sqlite.folder: the cluster's feature level is 99, this program knows "
    assert level.startswith(text)
    folder = tmp_path / "keeper"
    assert keeper.startswith(f"backend.process.folder: keeper folder {folder} serves cluster north")
    with pytest.raises(CannotStart, match="belongs to cluster 'west'"):
        Daemon(parse(raw, tmp_path), failed=lambda: None)


def test_what_the_cluster_itself_has_left_is_no_finding(tmp_path: Path) -> None:
    raw = with_keeper()
    record = used(tmp_path, of=raw)
    keeper_folder.claim(tmp_path / "keeper", KeeperOwner(record.cluster_id.hex(), "c"))
    printed = checked(raw, tmp_path)
    assert (printed.code, printed.err) == (0, "")


def test_a_keeper_folder_in_use_is_not_for_a_new_journal(tmp_path: Path) -> None:
    raw = with_keeper()
    keeper_folder.claim(tmp_path / "keeper", KeeperOwner("ff" * 16, "c"))
    (found,) = lines(checked(raw, tmp_path))
    assert found.endswith("and the journal of cluster c is new")
    assert checked(raw, tmp_path, "--adopt-keeper").code == 0


def test_shard_counts_that_differ_from_the_journal_are_named(tmp_path: Path) -> None:
    used(tmp_path, of=alone())
    (found,) = lines(checked(alone(shards={"jobmgr": 99}), tmp_path))
    assert "shard counts never change" in found


def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    used(tmp_path, of=alone())
    (tmp_path / "data" / "journal.sqlite").write_bytes(b"junk" * 5000)
    (found,) = lines(checked(alone(), tmp_path))
    assert found.startswith("journal.sqlite.folder: ") and "not a database" in found


def test_an_address_that_another_daemon_has_is_named(tmp_path: Path) -> None:
    """A copy of a config on another machine, where only `advertise` was forgotten."""
    server = zookeeper.shared().address
    client = KazooClient(server)
    client.start(timeout=60)
    root = f"/check-{os.getpid()}"
    raw = fleet(zookeeper={"hosts": [server], "root": root})
    (port,) = free_ports(1)
    raw["listen"] |= {"exchange": f"127.0.0.1:{port}", "advertise": f"localhost:{port}"}
    settings = parse(raw, tmp_path)
    try:
        assert not any("listen." in text for text in of_daemon(settings))
        node = member_bytes(MemberNode(f"localhost:{port}", ("jobmgr",)))
        client.create(f"{root}/c/members/other-1", node, makepath=True)
        client.create(f"{root}/c/members/junk", b"\xff", makepath=True)
        (found,) = [text for text in of_daemon(settings) if "listen." in text]
        assert found.startswith(f"listen.advertise: localhost:{port} is that of the member other-1")
        assert not any("zookeeper" in text for text in of_daemon(settings))
        client.set(
            f"{root}/c/members/other-1", member_bytes(MemberNode("127.0.0.1:1", ("jobmgr",)))
        )
        raw["listen"]["advertise"] = "127.0.0.1:2"
        assert [text for text in of_daemon(parse(raw, tmp_path)) if "listen." in text] == [
            "listen.advertise: 127.0.0.1:2 does not lead to this daemon: connection refused",
            "listen.exchange: the daemon at 127.0.0.1:1 (other-1) is out of reach: connection "
            "refused",
        ]
    finally:
        client.delete(root, recursive=True)
        client.stop()
        client.close()


def test_a_server_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    printed = checked(fleet(), tmp_path)
    start = f"peloton daemon: {tmp_path / 'daemon.yaml'}: "
    assert printed.err.splitlines() == [
        f"{start}journal.cassandra: Cassandra at 127.0.0.1 port 1: Connection refused",
        f"{start}zookeeper.hosts: ZooKeeper at {NOBODY}: connection refused: "
        "no server listens there",
    ]


def test_each_server_is_connected_to_once(tmp_path: Path) -> None:
    server = zookeeper.shared().address
    root = f"/once-{os.getpid()}"
    file = tmp_path / "daemon.yaml"
    file.write_text(yaml.safe_dump(fleet(zookeeper={"hosts": [server], "root": root})))
    once = connects.made_by_opening_cassandra(str(file))
    probe_and_session = 2
    port = int(server.rpartition(":")[2])
    assert once and connects.made_by_check(str(file)) == {**once, port: probe_and_session}


def test_an_account_for_tasks_that_is_missing_is_named(tmp_path: Path) -> None:
    base = ["minicluster", "--no-classic-ports", "--data-dir", str(tmp_path / "d" / "e")]
    base += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cluster"]

    def of(account: str) -> str:
        file = tmp_path / f"{account}.yaml"
        file.write_text(f"backend: {{process: {{task_user: {account}}}}}")
        return str(file)

    for check in (["--check"], []):
        printed = typed(*base, of("no-such-account"), *check)
        assert printed.code == 69
        assert "task_user: this machine has no account 'no-such-account'" in printed.err
        assert not (tmp_path / "d").exists()
    other = "root" if os.geteuid() else "nobody"
    tmp_path.chmod(0o700)
    printed = typed(*base, of(other), "--check")
    assert printed.code == 69
    if os.geteuid() == 0:
        assert f"--data-dir: tasks of {other} must not pass /" in printed.err
        assert "(mode 0700); name another folder" in printed.err
    else:
        assert f"task_user: only root can run tasks as another user, here {other}" in printed.err
    base[3] = "/tmp/peloton-test-that-is-never-made"
    printed = typed(*base, of(pwd.getpwuid(os.geteuid()).pw_name), "--check")
    assert (printed.code, printed.err) == (0, "")
    if os.geteuid() == 0:
        assert typed(*base, of(other), "--check").code == 0


@pytest.mark.needs_root("to give a folder away")
def test_a_folder_of_another_user_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    os.chown(tmp_path / "data", 65534, 65534)
    printed = checked(alone(), tmp_path)
    assert printed.code == 69
    assert f"journal.sqlite.folder: {tmp_path / 'data'}: it belongs to user" in printed.err


def test_a_copied_data_folder_is_a_finding(tmp_path: Path) -> None:
    DataFolder(tmp_path / "original").close()
    (tmp_path / "original" / "journal.sqlite").touch()
    folder_origin.record(tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "data")
    printed = checked(alone(), tmp_path)
    assert printed.code == 69
    assert f"{tmp_path / 'data'} is a copy of {tmp_path / 'original'}" in printed.err
    assert "is a copy of" not in checked(alone(), tmp_path, "--adopt-copy").err


def test_a_journal_on_servers_has_no_copy_to_adopt(tmp_path: Path) -> None:
    printed = checked(fleet(), tmp_path, "--adopt-copy")
    assert printed.code == 64 and "--adopt-copy: the journal is not in a folder" in printed.err


@pytest.mark.parametrize("name", ["secret_file", "agent_secret_file"])
def test_a_secret_of_mesos_that_is_empty_is_named(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    principal = name.replace("secret_file", "principal")
    raw = alone(backend={"mesos": {"master": "127.0.0.1:1", principal: "p", name: "secret"}})
    for text, code in (("", 69), (" \n", 69), ("abc\n", 0)):
        secret.write_text(text)
        printed = checked(raw, tmp_path)
        told = f"backend.mesos.{name}: {secret} is empty\n"
        assert (printed.code, told in printed.err) == (code, bool(code)), (text, printed)


def test_the_daemon_that_runs_is_no_finding(busy: int, tmp_path: Path) -> None:
    """A new setting can be checked before the restart that it needs."""
    ports = free_ports(2)
    listen = {"grpc": f"127.0.0.1:{ports[0]}", "http": f"127.0.0.1:{ports[1]}"}
    raw = alone(listen=listen)
    file = tmp_path / "daemon.yaml"
    file.write_text(yaml.safe_dump(raw))
    words = [sys.executable, "-m", "peloton", "daemon", "--config", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None and running.stdout.readline().startswith("ready: ")
            same = typed("daemon", "--config", str(file), "--check")
            assert (same.code, same.err) == (0, "")
            assert f"a daemon runs with its data folder (pid {running.pid})" in same.out
            file.write_text(
                yaml.safe_dump(raw | {"listen": listen | {"http": f"127.0.0.1:{busy}"}})
            )
            wrong = typed("daemon", "--config", str(file), "--check")
            assert wrong.code == 69 and "listen.http: " in wrong.err, wrong
            assert str(ports[0]) not in wrong.err and "is in use by" not in wrong.err, wrong
            # Another folder is another daemon, whose ports these are not.
            elsewhere = raw | {"journal": {"sqlite": {"folder": "elsewhere"}}}
            file.write_text(yaml.safe_dump(elsewhere))
            other = typed("daemon", "--config", str(file), "--check")
            assert other.code == 69 and f"with pid {running.pid}" in other.err, other
        finally:
            running.terminate()
