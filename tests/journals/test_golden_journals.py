"""The journal of every released version is read by this one, and says what it said.

`VERSION/journal.sqlite.xz` is a data folder's journal as that version left it (`make.py`), and
`VERSION/states.jsonl` what was recovered from it then: one line for each actor. A later version may
know more of an actor, never less or something else. The lines of a new version are recorded with

    PELOTON_RECORD_GOLDEN=1 pytest tests/journals/test_golden_journals.py
"""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from peloton import __version__
from peloton.assembly.daemon import Daemon
from peloton.assembly.journal_reader import JournalReader, open_source
from peloton.assembly.kinds import kinds
from peloton.failures import CannotStart
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import Claimed, JournalRefused, ShardId
from peloton.sdk.client import Client
from peloton.sdk.jobs import JobQuery
from peloton.settings.daemon import parse
from tests.journals import make

HERE = Path(__file__).parent
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/journal.sqlite.xz"))


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(golden: str, tmp_path: Path) -> Path:
    """A data folder with a copy of the journal."""
    packed = (HERE / golden / "journal.sqlite.xz").read_bytes()
    (tmp_path / "journal.sqlite").write_bytes(lzma.decompress(packed))
    return tmp_path


@pytest.fixture
def reader(folder: Path) -> Any:
    found = JournalReader(open_source(folder, None))
    yield found
    found.close()


def lacks(then: Any, now: Any, where: str = "") -> list[str]:
    """What was said then and is not said now; names that came since are no difference."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [
            text
            for name, value in then.items()
            for text in lacks(value, now.get(name, "nothing"), f"{where}.{name}")
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = zip(then, now, strict=True)
        return [text for at, pair in enumerate(pairs) for text in lacks(*pair, f"{where}[{at}]")]
    return [] if then == now else [f"{where}: {then!r}, now {now!r}"]


def test_there_is_one_of_the_version_that_is_out() -> None:
    assert __version__ in VERSIONS


def test_nothing_is_wrong_with_it(reader: JournalReader) -> None:
    assert [(shard, found) for shard, found in reader.findings() if found] == []


def test_every_actor_is_what_it_was(reader: JournalReader, golden: str) -> None:
    now = list(reader.states())
    path = HERE / golden / "states.jsonl"
    if os.environ.get("PELOTON_RECORD_GOLDEN"):
        path.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in now))
    then = [json.loads(line) for line in path.read_text().splitlines()]
    names = [(line["shard"], line["key"]) for line in then]
    assert [(line["shard"], line["key"]) for line in now] == names
    plain_now = json.loads(json.dumps(now))
    wrong = [text for a, b in zip(then, plain_now, strict=True) for text in lacks(a, b, a["key"])]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_fact_is_known_by_its_name(reader: JournalReader) -> None:
    facts = [fact for line in reader.lines() for fact in line["facts"]]
    assert len(facts) > 100
    assert [fact for fact in facts if fact["fact"] is None] == []


def test_it_holds_one_of_everything(reader: JournalReader) -> None:
    """A golden journal that lacks a kind would prove nothing about it."""
    keys = {line["key"].partition("/")[0] for line in reader.states()}
    assert keys == {"job", "slice", "task", "respool", "lot", "host", "inventory"}
    figures = list(reader.figures())
    assert all(each["checkpoint_parts"] for each in figures)
    assert any(each["tail_frames"] for each in figures)
    assert sum(each["ended_rows"] for each in figures) >= 4
    assert any("RequestAnswered" in fact for each in figures for fact in each["facts"])


def test_owning_it_makes_the_same_shards(reader: JournalReader, folder: Path) -> None:
    """As a daemon does: bootstrap, claim, checkpoint, tail; and the final states by their keys."""
    expected = {shard: digest(reader.recovered(shard)) for shard in reader.shards}
    ended = {shard: list(reader._source.ended(shard)) for shard in reader.shards}  # type: ignore[misc]
    reader.close()
    sizes: dict[str, int] = {}
    for shard in reader.shards:
        sizes[shard.group] = max(sizes.get(shard.group, 0), shard.number + 1)
    journal = SqliteJournal(folder / "journal.sqlite")
    try:
        journal.bootstrap(sizes)
        for shard in reader.shards:
            assert digest(owned(journal, shard, sizes)) == expected[shard]
            newest = {row.key: row for row in ended[shard]}  # in the order of their positions
            for key, row in newest.items():
                found = journal.read_ended(shard, kind=row.kind, key=key)
                assert found == (None if row.deleted else row)
    finally:
        journal.close()


def owned(journal: SqliteJournal, shard: ShardId, sizes: dict[str, int]) -> Shard:
    known = kinds(sizes)
    claimed = journal.claim(shard, "")
    assert isinstance(claimed, Claimed)
    core = Shard(shard, known, sharding=Sharding(known, sizes), codec=Codec(known))
    parts = list(journal.read_checkpoint(shard))
    restore(core, parts, frames=list(journal.read_tail(shard)), floor=claimed.floor)
    return core


def test_a_daemon_starts_on_it(folder: Path) -> None:
    """It serves the jobs that the journal has, also those that ended so long ago that they leave
    memory at once."""
    before = SqliteJournal(folder / "journal.sqlite")
    name = before.bootstrap(make.SHARDS).name
    before.close()
    raw = make.settings(folder) | ({"cluster": name} if name else {})
    daemon = Daemon(parse(raw, folder), failed=lambda: None)
    try:
        make.until(daemon.greeted.done)
        with Client(str(daemon.grpc)) as client:
            found = {summary.name for summary in client.jobs.query(JobQuery(archived=True)).results}
            assert found >= {"succeeded", "stopped", "waiting", "running", "impossible"}
    finally:
        assert daemon.stop()


def test_a_data_folder_of_version_0_1_0_is_refused_by_name_and_left_as_it_is(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        db.execute("UPDATE cluster SET format = 1")
        db.execute("DROP TABLE witness")  # which came later
    before = (folder / "journal.sqlite").read_bytes()
    refused = "the journal has format 1, of version 0.1.0 .*`peloton respool dump`"
    with pytest.raises(CannotStart, match=refused):
        Daemon(parse(make.settings(folder), folder), failed=lambda: None)
    with pytest.raises(JournalRefused, match=refused):
        JournalReader(open_source(folder, None))
    assert (folder / "journal.sqlite").read_bytes() == before
    assert not (folder / "witness").exists()


def test_less_or_other_is_noticed() -> None:
    then = {"a": 1, "b": [{"c": 2}], "d": {"e": None}}
    assert lacks(then, {**then, "z": 1}) == []
    assert lacks(then, {"a": 1, "b": [{"c": 2, "new": 1}], "d": {"e": None}}) == []
    assert lacks(then, {"b": [{"c": 3}], "d": {"e": None}}) == [
        ".a: 1, now 'nothing'",
        ".b[0].c: 2, now 3",
    ]
    assert lacks(then, {**then, "b": []}) == [".b: [{'c': 2}], now []"]
