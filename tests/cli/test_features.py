"""`peloton features raise`: only with every member of the fleet behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from peloton.features import raise_level
from peloton.runtime.adapters.memory import MemoryJournal, MemoryStore
from peloton.runtime.ports import JournalRefused, MemberNode
from tests.cli.terminal import typed


def journal() -> MemoryJournal:
    made = MemoryJournal(MemoryStore(), process=bytes(16))
    made.bootstrap({"a": 1})
    return made


def member(level: int) -> MemberNode:
    return MemberNode("a:1", ("jobmgr",), level=level)


def test_it_is_raised_when_all_members_know_it() -> None:
    made = journal()
    assert raise_level(made, {"d1": member(2), "d2": member(3)}, known=2) == 2
    assert made.level() == 2


@pytest.mark.parametrize("other", [member(1), MemberNode("old:1", ("jobmgr",)), None])
def test_one_member_that_does_not_know_it_is_named(other: MemberNode | None) -> None:
    made = journal()
    with pytest.raises(JournalRefused, match="level 2 is not known to d2: upgrade"):
        raise_level(made, {"d1": member(2), "d2": other}, known=2)
    assert made.level() == 0


def test_a_fleet_that_is_down_says_nothing() -> None:
    with pytest.raises(JournalRefused, match="no daemon is up"):
        raise_level(journal(), {}, known=1)


def test_a_daemon_that_is_alone_needs_no_word(tmp_path: Path) -> None:
    config = tmp_path / "daemon.yaml"
    config.write_text(
        "cluster: a\njournal: {sqlite: {folder: data}}\n"
        "backend: {simulated: {hosts: [{name: a}]}}\n"
    )
    printed = typed("features", "raise", "--config", str(config))
    assert printed.code == 64 and "raises the level itself" in printed.err


def test_a_zookeeper_that_is_down_is_one_line(tmp_path: Path) -> None:
    """In a process of its own: what kazoo logs goes to the last handler there is."""
    config = tmp_path / "daemon.yaml"
    config.write_text(
        "cluster: a\njournal: {cassandra: {contacts: [127.0.0.1]}}\n"
        "zookeeper: {hosts: ['127.0.0.1:1']}\nbackend: {simulated: {hosts: [{name: a}]}}\n"
    )
    line = [sys.executable, "-m", "peloton", "features", "show", "--config", str(config)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (69, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("peloton features show: ZooKeeper at 127.0.0.1:1")
