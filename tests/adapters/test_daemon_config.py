"""A daemon's file: what it means, and that each mistake in it is named by its field.

Neither sockets nor stores are opened.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.settings.backend import MesosBackendSettings
from peloton.settings.config import BadSetting
from peloton.settings.daemon import ROLES, parse, read_settings
from tests.conftest import ROOT

HERE = Path("/etc/peloton")
ALONE: dict[str, Any] = {
    "cluster": "c",
    "journal": {"sqlite": {"folder": "data"}},
    "backend": {"simulated": {"hosts": [{"name": "a"}]}},
}
FLEET: dict[str, Any] = ALONE | {
    "journal": {"cassandra": {"contacts": ["127.0.0.1"]}},
    "zookeeper": {"hosts": ["127.0.0.1:2181"]},
}
TLS = {"ca": "ca.pem", "certificate": "a.pem", "key": "/keys/a.key"}


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field set; None takes it away."""
    found = copy.deepcopy(base)
    *folders, name = path.split(".")
    at = found
    for folder in folders:
        at = at.setdefault(folder, {})
    if value is None:
        del at[name]
    else:
        at[name] = value
    return found


def test_the_example_can_be_used_as_it_is() -> None:
    found = read_settings(ROOT / "examples" / "daemon.yaml")
    assert found.roles == [*ROLES] and not found.alone
    assert found.backend.process is not None
    assert found.backend.process.folder == ROOT / "examples" / "keeper"


def test_the_example_shows_every_default_as_it_is() -> None:
    """Each line behind a `#` that is a setting, taken in, changes nothing."""
    text = (ROOT / "examples" / "daemon.yaml").read_text()
    plain = parse(yaml.safe_load(text), HERE)
    shown = []
    for line in text.splitlines():
        bare = line.lstrip()
        known = ("advertise", "session_timeout_s", "root", "port", "keyspace", "data_centre")
        known += ("username", "password_file", "ca_file", "shards", "limits", "receive_max_bytes")
        known += ("checkpoint_bytes_min", "quarantine_after", "access", "audit_folder")
        known += ("preemption", "enabled", "after", "at_once", "most", "within", "inside")
        known += ("placement", "strategies", "retry", "attempts_per_cycle", "timeout", "backoff")
        name = bare.removeprefix("#").strip().partition(":")[0]
        taken = bare.startswith("#") and name in known
        shown.append(line.replace("# ", "", 1) if taken else line)
    whole = parse(yaml.safe_load("\n".join(shown)), HERE)
    assert whole.shards == plain.sizes
    assert parse(yaml.safe_load("\n".join(shown)) | {"shards": {}}, HERE) == plain


def test_a_daemon_alone_needs_little() -> None:
    found = parse(ALONE, HERE)
    assert found.alone and found.sizes == {"jobmgr": 8, "resmgr": 1, "hostmgr": 8}
    assert found.journal.sqlite is not None
    assert found.journal.sqlite.folder == HERE / "data"


def test_a_fleet_has_more_shards_and_may_say_how_many() -> None:
    assert parse(FLEET, HERE).sizes == {"jobmgr": 16, "resmgr": 1, "hostmgr": 16}
    some = parse(changed(FLEET, "shards.jobmgr", 4), HERE)
    assert some.sizes == {"jobmgr": 4, "resmgr": 1, "hostmgr": 16}


def test_paths_are_relative_to_the_file() -> None:
    found = parse(FLEET | {"tls": TLS}, HERE).tls
    assert found is not None
    assert (found.ca, found.key) == (HERE / "ca.pem", Path("/keys/a.key"))


def test_roles_of_the_command_line_come_before_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "daemon.yaml"
    file.write_text(yaml.safe_dump(FLEET))
    assert read_settings(file, "api, placement").roles == ["api", "placement"]
    with pytest.raises(BadSetting, match=r"roles\[1\]: 'apx' must be one of jobmgr"):
        read_settings(file, "api,apx")


def test_permissions_are_checked_with_the_settings(tmp_path: Path) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text("pools:\n  /: {administer: [ann]}\n  /a: {submitt: [b]}\n")
    with pytest.raises(BadSetting) as caught:
        parse(ALONE | {"access": {"file": "access.yaml"}, "roles": ["x"]}, tmp_path)
    told = f"access.file: {rules}: line 3: pools./a: unknown permission `submitt`, did you mean"
    assert [text for text in caught.value.texts if text.startswith(told)]
    assert any(text.startswith("roles[0]") for text in caught.value.texts), "all at once"


def test_where_the_audit_log_is() -> None:
    assert parse(FLEET, HERE).access.audit_folder == HERE / "audit"
    assert parse(ALONE, HERE).access.audit_folder is None, "beside the journal"
    chosen = parse(FLEET | {"access": {"audit_folder": "logs"}}, HERE)
    assert chosen.access.audit_folder == HERE / "logs"


MESOS: dict[str, Any] = {**ALONE, "backend": {"mesos": {"master": "127.0.0.1:5050"}}}
_MASTER = r"^backend\.mesos\.master: .* is neither HOST:PORT nor zk://HOST:PORT,…/PATH$"
EAST = {"name": "east", "master": "a:5050"}
WRONG_SECOND: list[tuple[dict[str, str], str]] = [
    (
        {"name": "east", "master": "b:5050"},
        r"^backend\.mesos\[1\]\.name: 'east' is backend\.mesos\[0\]\.name as well$",
    ),
    (
        {"name": "east.x", "master": "b:5050"},
        r"^backend\.mesos\[1\]\.name: 'east\.x': with backend\.mesos\[0\]\.name, 'east', hosts of",
    ),
    (
        {"name": "west", "master": "a:5050"},
        r"^backend\.mesos\[1\]\.master: a:5050 is backend\.mesos\[0\]\.master as well$",
    ),
    ({"name": "west"}, r"^backend\.mesos\[1\]: missing required field `master`$"),
    (
        EAST | {"name": "west", "master": "b"},
        r"^backend\.mesos\[1\]\.master: 'b' is neither HOST:PORT nor",
    ),
    (
        {"name": "west", "master": "b:1", "rolle": "x"},
        r"^backend\.mesos\[1\]: unknown field `rolle`, did you mean `role`\?$",
    ),
    (
        {"name": "west", "master": "b:1", "secret_file": "s"},
        r"^backend\.mesos\[1\]\.secret_file: needs a principal: backend\.mesos\[1\]\.principal is",
    ),
]
WRONG_OF_MESOS: list[tuple[dict[str, Any], str, Any, str]] = [
    (MESOS, "backend.mesos.master", None, r"^backend\.mesos: .*missing required field `master`"),
    (MESOS, "backend.mesos.master", "master", _MASTER),
    (MESOS, "backend.mesos.master", "http://a:5050", _MASTER),
    (MESOS, "backend.mesos.master", "zk://a:2181", _MASTER),
    (MESOS, "backend.mesos.master", "", _MASTER),
    (MESOS, "backend.mesos.name", "", r"^backend\.mesos\.name: '' is not a name"),
    (MESOS, "backend.mesos.name", "a/b", r"^backend\.mesos\.name: 'a/b' is not a name"),
    (MESOS, "backend.mesos.role", "*", r"^backend\.mesos\.role: '\*' is not a name"),
    (MESOS, "backend.mesos.framework", "-a", r"^backend\.mesos\.framework: '-a' is not a name"),
    (MESOS, "backend.mesos.secret_file", "f", r"^backend\.mesos\.secret_file: needs a principal"),
    (
        MESOS,
        "backend.mesos.batch_executor",
        "own",
        r"^backend\.mesos\.batch_executor: 'own' is not",
    ),
    (
        MESOS,
        "backend.mesos.executor_idle_s",
        0.9,
        r"^backend\.mesos\.executor_idle_s: between 1 and",
    ),
    (MESOS, "backend.mesos.agent_secret_file", "f", r"^backend\.mesos\.agent_principal: agents"),
    (MESOS, "backend.mesos.agent_principal", "p", r"^backend\.mesos\.agent_secret_file: agents"),
    (MESOS, "backend.mesos.tls", {}, r"^backend\.mesos\.tls: .*missing required field `ca`"),
    (MESOS, "backend.mesos.tls", {"ca": "a", "key": "k"}, r"^backend\.mesos\.tls\.certificate: a"),
    (MESOS, "backend.mesos.tls", {"ca": "a", "certificate": "c"}, r"^backend\.mesos\.tls\.key: a"),
    (MESOS, "backend.mesos.tls", {"ca": "a", "verify": False}, r"unknown field `verify`"),
    (MESOS, "backend.mesos.revocable", "x", r"^backend\.mesos\.revocable: expected "),
    (MESOS, "backend.mesos.rolle", "x", r"^backend\.mesos: unknown field `rolle`, did you mean"),
    (MESOS, "backend.mesos", [], r"^backend\.mesos: must not be empty$"),
    (
        MESOS,
        "backend.mesos",
        5,
        r"^backend\.mesos: expected keys and values or a list, got a whole number$",
    ),
    *((MESOS, "backend.mesos", [EAST, two], text) for two, text in WRONG_SECOND),
    (MESOS, "backend.simulated", {"hosts": [{"name": "a"}]}, r"^backend: give one of "),
]

WRONG: list[tuple[dict[str, Any], str, Any, str]] = [
    (ALONE, "clutser", "x", r"^unknown field `clutser`, did you mean `cluster`\?$"),
    (ALONE, "xyz", "x", r"^unknown field `xyz`, there are cluster, journal, roles, "),
    (
        ALONE,
        "shards",
        {"jobmgr": "x"},
        r"^shards\[\.\.\.\]: expected a whole number, got a text$",
    ),
    (FLEET, "zookeeper.hots", [], r"^zookeeper: unknown field `hots`, did you mean `hosts`\?$"),
    (
        ALONE | {"backend": {"process": {"folder": "b", "hosts": [{"name": "a"}]}}},
        "journal.sqlite.folder",
        "b",
        r"^backend\.process\.folder: .* is journal\.sqlite\.folder as",
    ),
    (
        ALONE | {"backend": {"process": {"folder": "b", "hosts": [{"name": "a"}]}}},
        "journal.sqlite.folder",
        "b/c/../d",
        r"^journal\.sqlite\.folder: .* is inside of backend",
    ),
    (
        ALONE | {"backend": {"process": {"folder": "b", "hosts": [{"name": "a"}]}}},
        "backend.process.keep_sandboxes",
        -1,
        r"^backend\.process\.keep_sandboxes: -1 is not between 0 and 1e\+06$",
    ),
    (
        ALONE | {"backend": {"process": {"folder": "b", "hosts": [{"name": "a"}]}}},
        "backend.process.task_user",
        7,
        r"^backend\.process\.task_user: expected a text, got a whole number$",
    ),
    (
        ALONE,
        "journal.sqlite.folder",
        "~no-such-user/x",
        r"^journal\.sqlite\.folder: expected a path, got '~no-such-user/x'",
    ),
    (ALONE, "cluster", None, r"missing required field `cluster`"),
    (ALONE, "cluster", "a/b", r"^cluster: 'a/b' is not a name"),
    (ALONE, "cluster", "", r"^cluster: '' is not a name"),
    (ALONE, "listen.gprc", "x", r"^listen: .*`gprc`"),
    (ALONE, "listen.grpc", 5, r"^listen\.grpc: expected a text, got a whole number$"),
    (ALONE, "listen.grpc", "0.0.0.0:1", r"^listen\.grpc: 0\.0\.0\.0 is not a loopback address"),
    (ALONE, "listen.http", "localhost", r"^listen\.http: 'localhost' is not HOST:PORT"),
    (ALONE, "listen.exchange", "x", r"^listen\.exchange: 'x' is not HOST:PORT"),
    (ALONE, "listen.exchange", "x:70000", r"^listen\.exchange: port 70000"),
    (FLEET, "listen.exchange", "10.0.0.1:1", r"^listen\.exchange: 10\.0\.0\.1 is not a loopback"),
    (FLEET | {"tls": TLS}, "listen.exchange", "0.0.0.0:1", r"^listen\.advertise: peers cannot"),
    (FLEET, "listen.advertise", "b:0", r"^listen\.advertise: port must not be 0"),
    (FLEET, "tls", {"ca": "x"}, r"^tls: .*missing required field `certificate`"),
    (FLEET, "tls", TLS | {"ca": 5}, r"^tls\.ca: expected a path, got 5"),
    (ALONE, "roles", [], r"^roles: must not be empty"),
    (ALONE, "roles", ["api", "api"], r"^roles\[1\]: duplicate role 'api'"),
    (ALONE, "roles", ["api"], r"^roles: missing jobmgr, resmgr, hostmgr, placement"),
    (ALONE, "journal", {}, r"^journal: give one of sqlite and cassandra"),
    (ALONE, "journal.cassandra", {"contacts": ["x"]}, r"^journal: give one of"),
    (ALONE, "zookeeper.hosts", ["x:1"], r"^journal\.sqlite: other daemons cannot read it"),
    (FLEET, "zookeeper", None, r"^zookeeper: required with journal.cassandra"),
    (FLEET, "zookeeper.hosts", [], r"^zookeeper\.hosts: must not be empty"),
    (FLEET, "zookeeper.hosts", "x:1", r"^zookeeper\.hosts: expected a list, got a text$"),
    (FLEET, "zookeeper.root", "peloton", r"^zookeeper\.root: .*must begin with /"),
    (FLEET, "zookeeper.session_timeout_s", 0.1, r"^zookeeper\.session_timeout_s: 0\.1 is not"),
    (FLEET, "journal.cassandra.contacts", [], r"^journal\.cassandra\.contacts: must not be empty"),
    (FLEET, "journal.cassandra.port", 0, r"^journal\.cassandra\.port: 0 is not between"),
    (ALONE, "backend", {}, r"^backend: a daemon with role hostmgr needs one"),
    (ALONE, "backend.process", {"folder": "k", "hosts": []}, r"^backend: give one of"),
    (ALONE, "backend.simulated.hosts", [], r"^backend: a daemon with role hostmgr needs one"),
    (
        ALONE,
        "backend.simulated.hosts",
        [{"name": "a"}, {"name": "a"}],
        r"^backend\.simulated\.hosts\[1\]\.name: duplicate host 'a'",
    ),
    (
        ALONE,
        "backend.simulated.hosts",
        [{"name": "a", "cpus": "two"}],
        r"^backend\.simulated\.hosts\[0\]\.cpus: expected a number, got a text",
    ),
    (ALONE, "shards.taskmgr", 3, r"^shards\.taskmgr: there are jobmgr, resmgr, hostmgr"),
    (ALONE, "shards.jobmgr", 0, r"^shards\.jobmgr: 0 is not between 1 and 4096"),
    (ALONE, "placement.strategies.MAGIC", "pack", r"^placement\.strategies\.MAGIC: there are BA"),
    (
        ALONE,
        "placement.retry.timeout",
        "soon",
        r"^placement\.retry\.timeout: 'soon' is not a length",
    ),
    (ALONE, "placement.retry.timeout", "0s", r"^placement\.retry\.timeout: must be longer than 0s"),
    (ALONE, "placement.retry.backoff", "5", r"^placement\.retry\.backoff: '5' is not a length of"),
    (
        ALONE,
        "placement.retry.attempts_per_cycle",
        0,
        r"^placement\.retry\.attempts_per_cycle: 0 is not between 1 and 100",
    ),
    (ALONE, "preemption.at_once", 0, r"^preemption\.at_once: 0 is not between 1 and"),
    (ALONE, "preemption.most", -1, r"^preemption\.most: -1 is not between 1 and"),
    (ALONE, "preemption.after", "soon", r"^preemption\.after: 'soon' is not a length of time"),
    (ALONE, "preemption.within", "1", r"^preemption\.within: '1' is not a length of time"),
    (
        ALONE,
        "preemption.inside",
        {"a": "1m"},
        r"^preemption\.inside: 'a' is not the path of a pool",
    ),
    (
        ALONE,
        "preemption.inside",
        {"/a": "x"},
        r"^preemption\.inside\./a: 'x' is not a length of time",
    ),
    (
        ALONE,
        "limits.scarce_resource_types",
        ["GPU", "cpu"],
        r"^limits\.scarce_resource_types\[1\]: 'cpu' must be one of GPU",
    ),
    (ALONE, "limits.quarantine_after", 31, r"^limits\.quarantine_after: 31 is not between"),
    (ALONE, "limits.receive_max_bytes", 1, r"^limits\.receive_max_bytes: 1 is not between"),
]


@pytest.mark.parametrize(("base", "path", "value", "text"), WRONG + WRONG_OF_MESOS)
def test_a_mistake_is_named_by_its_field(
    base: dict[str, Any], path: str, value: Any, text: str
) -> None:
    assert parse(base, HERE), "right before the mistake"
    with pytest.raises(BadSetting, match=text):
        parse(changed(base, path, value), HERE)


def test_with_tls_peers_may_meet_anywhere() -> None:
    file = changed(FLEET | {"tls": TLS}, "listen.exchange", "0.0.0.0:5399")
    assert parse(changed(file, "listen.advertise", "10.0.0.7:5399"), HERE)


def test_hosts_are_wanted_of_those_alone_who_own_them() -> None:
    assert parse(changed(FLEET | {"roles": ["jobmgr", "api"]}, "backend", None), HERE)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("- a", "expected keys and values, got a list"),
        ("a: [", "not YAML"),
        ("", "expected keys and values, got nothing"),
        ("cluster: a\ncluster: b", "line 2: cluster is given twice"),
        ("cluster: a\nlisten: {grpc: a, http: b, grpc: c}", "line 2: grpc is given twice"),
        ("cluster: !!timestamp x", "a value does not have the form of its tag"),
    ],
)
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(content)
    with pytest.raises(BadSetting, match=text) as error:
        read_settings(file)
    assert str(file) in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="nowhere.yaml: No such file"):
        read_settings(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    "master", ["mesos.example:5050", "[::1]:5050", "zk://a:2181/mesos", "zk://u:p@a:1,b:2/x/y"]
)
def test_the_masters_of_mesos_may_be_one_or_in_zookeeper(master: str) -> None:
    found = parse(changed(MESOS, "backend.mesos.master", master), HERE).backend
    assert found.mesos is not None and found.mesos.master == master
    assert (found.name, found.hosts) == ("mesos", []), "its agents say which hosts there are"


def test_clusters_of_mesos_are_one_or_a_list() -> None:
    west = {"name": "west", "master": "zk://b:2181/mesos", "secret_file": "s", "principal": "p"}
    found = parse(changed(MESOS, "backend.mesos", [EAST, west]), HERE).backend
    told = {field: (one.name, one.secret_file) for field, one in found.clusters.items()}
    assert told == {"backend.mesos[0]": ("east", None), "backend.mesos[1]": ("west", HERE / "s")}
    assert (found.name, found.hosts) == ("mesos", [])
    assert [*parse(MESOS, HERE).backend.clusters] == ["backend.mesos"]
    assert not parse(ALONE, HERE).backend.clusters


def test_a_mistake_in_a_list_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "daemon.yaml"
    east, west = "{name: east, master: a:1}", "{name: east, master: b:1}"
    file.write_text(
        "cluster: c\njournal:\n  sqlite: {folder: data}\nbackend:\n"
        f"  mesos:\n  - {east}\n  - {west}\n"
    )
    with pytest.raises(BadSetting, match=r"line 7: backend\.mesos\[1\]\.name: 'east' is"):
        read_settings(file)


def test_the_secret_of_mesos_is_a_file_beside_the_settings() -> None:
    mesos = {"master": "a:1", "principal": "peloton", "secret_file": "secret"}
    found = parse(ALONE | {"backend": {"mesos": mesos}}, HERE).backend.mesos
    assert found is not None and found.secret_file == HERE / "secret"


def test_with_tls_batch_tasks_have_an_executor_that_speaks_it() -> None:
    tls = {"tls": {"ca": "ca.pem"}}
    for more, by in (
        ({}, "keeper"),
        (tls, "command"),
        (tls | {"batch_executor": "keeper"}, "keeper"),
    ):
        found = parse(ALONE | {"backend": {"mesos": {"master": "a:1", **more}}}, HERE).backend.mesos
        assert isinstance(found, MesosBackendSettings) and found.batch_by == by
        assert found.tls is None or found.tls.ca == HERE / "ca.pem"


def test_the_example_of_mesos_shows_every_default_as_it_is() -> None:
    text = (ROOT / "examples" / "mesos.yaml").read_text()
    plain = parse(yaml.safe_load(text), HERE)
    assert plain.alone and plain.backend.mesos is not None
    shown = yaml.safe_load(re.sub(r"^( +)# (\w+:( \S+)?)$", r"\1\2", text, flags=re.M))
    mesos = shown["backend"]["mesos"]
    assert {*mesos} == {*plain.backend.mesos.__struct_fields__}
    for field in ("principal", "secret_file"):  # there are none by default
        del mesos[field], mesos[f"agent_{field}"]
    assert parse(shown, HERE) == plain
