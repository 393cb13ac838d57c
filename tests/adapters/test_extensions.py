"""Kinds of other distributions: found when a daemon starts, given shards, or refused by name."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from peloton.assembly import extensions as assembly
from peloton.assembly.extensions import (
    KIND_GROUP,
    extension_problems,
    installed_kinds,
    missing_kinds,
)
from peloton.assembly.installed import BadInstalled
from peloton.failures import CannotStart
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.ports import Journal, JournalRefused
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.settings.daemon import ROLES, DaemonSettings, parse
from tests.cli.terminal import typed

ROOT = Path(__file__).parents[2]
ENTRY = "bell = ringing:BELL"
CODE = """\
from peloton.sdk.kit import ActorFact, ActorKind, ActorMessage, ActorState, At, Decision


class Bell(ActorState, frozen=True):
    rung: int = 0


class Ring(ActorMessage, frozen=True):
    pass


class Rang(ActorFact, frozen=True):
    pass


BELL = ActorKind("bell", state=Bell, shards=3)


@BELL.decides(Ring)
def ring(bell: Bell, message: Ring, at: At) -> Decision:
    return Decision((Rang(),))


@BELL.folds(Rang)
def rang(bell: Bell, fact: Rang) -> Bell:
    return Bell(rung=bell.rung + 1)
"""
ALONE = {
    "cluster": "c",
    "journal": {"sqlite": {"folder": "data"}},
    "backend": {"simulated": {"hosts": [{"name": "a", "cpus": 1}]}},
    "listen": dict.fromkeys(("grpc", "http"), "127.0.0.1:0"),
}


class Site(NamedTuple):
    """A folder of installed distributions."""

    folder: Path

    def install(self, name: str, code: str, *entries: str, module: str = "ringing") -> Path:
        file = self.folder / f"{module}.py"
        file.write_text(code)
        # What was compiled of as long a text within the same second would pass for this one's.
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        info = self.folder / f"{name.replace('-', '_')}-1.5.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text("\n".join([f"[{KIND_GROUP}]", *entries, ""]))
        invalidate_caches()
        assembly.extensions.cache_clear()
        return file


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield Site(folder)
    for name in ("ringing", "tolling"):
        sys.modules.pop(name, None)
    assembly.extensions.cache_clear()


def test_one_that_is_registered_is_found_and_built(site: Site) -> None:
    assert not installed_kinds().kinds
    site.install("acme-bells", CODE, ENTRY)
    found = installed_kinds()
    assert found.kinds.keys() == {"bell"} and found.shards == {"bell": 3}
    kind = found.kinds["bell"]
    assert (kind.name, kind.group) == ("bell", "bell")
    assert [cls.__name__ for cls in kind.messages.values()] == ["Ring"]


def test_one_that_is_registered_twice_by_one_distribution_is_one(site: Site) -> None:
    site.install("acme-bells", CODE, ENTRY, ENTRY)
    assert installed_kinds().kinds.keys() == {"bell"}


BAD: list[tuple[str, str, str, str]] = [
    ("an import that fails", "\nimport nothing_of_that_name\n", ENTRY,
     r"cannot be loaded, at FILE:2: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ("a module that is broken", "def\n", ENTRY, r"cannot be loaded: SyntaxError: .*line 1"),
    ("a declaration that raises", CODE.replace("@BELL.decides(Ring)", "@BELL.decide(Ring)"), ENTRY,
     r"cannot be loaded, at FILE:19: AttributeError: 'ActorKind' object has no attribute 'decide'"),
    ("a name that is not there", "X = 1\n", ENTRY, r"cannot be loaded: AttributeError"),
    ("no kind", "BELL = len\n", ENTRY,
     r"is a builtin_function_or_method, not a ActorKind of peloton\.sdk\.kit\.declaring"),
    ("another name", CODE.replace('"bell"', '"gong"'), ENTRY,
     r"calls itself 'gong': both are one name"),
    ("mistakes", CODE.replace("rung: int = 0", "rung: int").replace("@BELL.folds(Rang)\n", ""),
     ENTRY, r"cannot work:\nFILE:4: kind bell: field rung of Bell has no default: a new actor has "
     r"none\nFILE:19: kind bell: no function folds the fact Rang that it uses$"),
    ("a target that is not there", CODE.replace("shards=3", 'sends_to=["gong", "bell"]'), ENTRY,
     r"sends to gong, and no such kind is installed"),
    ("a kind of ours", CODE.replace('"bell"', '"job"'), "job = ringing:BELL",
     r": Peloton itself has a kind of that name"),
    ("a service of ours", CODE.replace('"bell"', '"client"'), "client = ringing:BELL",
     r": Peloton itself has a kind of that name"),
    ("a group of ours", CODE.replace('"bell"', '"jobmgr"'), "jobmgr = ringing:BELL",
     r": Peloton itself has a kind of that name"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "code", "entry", "says"), BAD, ids=[row[0] for row in BAD])
def test_what_cannot_be_used_stops_the_start_and_names_its_place(
    site: Site, what: str, code: str, entry: str, says: str
) -> None:
    file = site.install("acme-bells", code, entry)
    with pytest.raises(BadInstalled) as caught:
        installed_kinds()
    text = str(caught.value)
    assert re.search(says.replace("FILE", re.escape(str(file))), text), text
    assert "of acme-bells 1.5 (ringing:BELL)" in text
    assert isinstance(caught.value, CannotStart)
    assert extension_problems() == text.split("\n")


def test_two_distributions_cannot_have_one_name(site: Site) -> None:
    site.install("acme-bells", CODE, ENTRY)
    site.install("zeta", CODE, "bell = tolling:BELL", module="tolling")
    with pytest.raises(BadInstalled, match="of zeta 1.5 .*: acme-bells has a kind of that name"):
        installed_kinds()


def test_a_check_of_a_daemon_shows_it(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "daemon.yaml"
    file.write_text(yaml.safe_dump(ALONE))
    broken = site.install("acme-bells", CODE.replace("rung: int = 0", "rung: int"), ENTRY)
    done = typed("daemon", "--config", str(file), "--check")
    assert done.code != 0
    assert "kind 'bell' of acme-bells 1.5 (ringing:BELL) cannot work:" in done.out + done.err
    assert f"{broken}:4: kind bell: field rung of Bell has no default" in done.out + done.err
    del sys.modules["ringing"]
    site.install("acme-bells", CODE, ENTRY)
    done = typed("daemon", "--config", str(file), "--check")
    assert done.code == 0, done.err


# ---- groups of shards ----


@pytest.fixture(params=["sqlite", "rows"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "rows":
        yield FencedRows(MemoryRows(), process=b"-" * 16)
        return
    found = SqliteJournal(tmp_path / "journal.db")
    yield found
    found.close()


@pytest.fixture
def settings(tmp_path: Path) -> DaemonSettings:
    return parse(ALONE, tmp_path)


def test_a_living_cluster_gets_a_group_whose_count_never_changes(
    site: Site, journal: Journal, settings: DaemonSettings
) -> None:
    record, sizes = installed_kinds().bootstrap(journal, settings)
    assert record.shards == sizes == settings.sizes, "nothing is installed yet"

    site.install("acme-bells", CODE, ENTRY)
    record, sizes = installed_kinds().bootstrap(journal, settings)
    assert record.shards == sizes == settings.sizes | {"bell": 3}

    del sys.modules["ringing"]
    site.install("acme-bells", CODE.replace("shards=3", "shards=9"), ENTRY)
    assert installed_kinds().shards == {"bell": 9}
    assert installed_kinds().bootstrap(journal, settings) == (record, sizes)

    # Without the package the group stays, and the daemon knows that it does not serve it.
    site.install("acme-bells", CODE)
    record, sizes = installed_kinds().bootstrap(journal, settings)
    assert record.shards == settings.sizes | {"bell": 3} and sizes == settings.sizes
    served = [*ROLES, "bell"]
    (note,) = missing_kinds(record.shards, sizes, served=list)()
    assert note.text.endswith("serve their actors, this one does not: bell")
    assert not missing_kinds(record.shards, record.shards, served=lambda: served)()
    # One that another daemon has brought since this one started.
    (later,) = missing_kinds(settings.sizes, sizes, served=lambda: served)()
    assert later == note


def test_a_journal_of_another_cluster_is_refused_as_ever(
    site: Site, journal: Journal, settings: DaemonSettings, tmp_path: Path
) -> None:
    site.install("acme-bells", CODE, ENTRY)
    installed_kinds().bootstrap(journal, settings)
    other = parse(ALONE | {"cluster": "d"}, tmp_path)
    with pytest.raises(JournalRefused):
        installed_kinds().bootstrap(journal, other)


def test_daemons_that_own_jobs_own_the_groups_of_extensions(site: Site, tmp_path: Path) -> None:
    site.install("acme-bells", CODE, ENTRY)
    fleet = {
        **ALONE,
        "zookeeper": {"hosts": ["none"]},
        "journal": {"cassandra": {"contacts": ["none"]}},
        "listen": dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0"),
    }
    for roles, expected in ((["jobmgr", "api"], ("bell",)), (["hostmgr", "placement"], ())):
        found = parse(fleet | {"roles": roles}, tmp_path)
        assert installed_kinds().roles(found) == expected
