"""`peloton journal` as a person types it, over copies of the golden journal."""

from __future__ import annotations

import json
import lzma
import sqlite3
from pathlib import Path

import pytest

from peloton import __version__
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.sqlite_witness import WitnessOptions
from peloton.runtime.core.offline import witness
from peloton.runtime.ports import ShardId
from tests.cli.terminal import typed

JOB = "00000000-0000-4000-8000-000000000000"
GOLDEN = Path(__file__).parent.parent / "journals" / __version__ / "journal.sqlite.xz"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "journal.sqlite").write_bytes(lzma.decompress(GOLDEN.read_bytes()))
    return folder


def behind(data: Path, statement: str, *values: object) -> None:
    database = sqlite3.connect(data / "journal.sqlite")
    with database:
        assert database.execute(statement, values).rowcount > 0
    database.close()


def journal(data: Path, command: str, *words: str) -> tuple[int, list[str], str]:
    printed = typed("journal", command, "--data-dir", str(data), *words)
    return printed.code, printed.out.splitlines(), printed.err


def test_a_healthy_journal_is_checked(data: Path) -> None:
    code, lines, _ = journal(data, "check")
    assert (code, lines) == (0, ["ok      hostmgr-0", "ok      jobmgr-0", "ok      jobmgr-1",
                                 "ok      resmgr-0"])  # fmt: skip


def test_what_is_damaged_is_named_and_the_exit_code_says_so(data: Path) -> None:
    where = "shard_group = 'hostmgr'"
    behind(data, f"UPDATE journal SET body = CAST(body || x'00' AS BLOB) WHERE {where}"
           " AND position = 15")  # fmt: skip
    behind(data, f"DELETE FROM journal WHERE {where} AND position = 16")
    code, lines, _ = journal(data, "check")
    assert code == 1
    wrong = [line for line in lines if line.startswith("wrong")]
    assert wrong[:2] == [
        "wrong   hostmgr-0 position 16: no whole frame is there",
        "wrong   hostmgr-0 position 15: it is not what was written",
    ]
    (undecoded,) = wrong[2:]
    assert undecoded.startswith("wrong   hostmgr-0 position 15: the frame does not decode: ")
    assert lines[-1] == "ok      resmgr-0", "the others are looked at all the same"


def test_final_states_are_checked_too(data: Path) -> None:
    behind(data, "UPDATE ended SET body = x'00' WHERE kind = 'slice' AND deleted = 0"
           " AND shard_number = 1")  # fmt: skip
    code, lines, _ = journal(data, "check", "--shard", "jobmgr-1")
    assert code == 1 and lines
    assert all("slice/" in line and "its final state cannot be read" in line for line in lines)


def test_entries_are_lines_of_json(data: Path) -> None:
    code, lines, _ = journal(data, "dump", "--shard", "resmgr-0", "--from", "3", "--limit", "5")
    entries = [json.loads(line) for line in lines]
    assert code == 0 and len(entries) == 5
    assert {entry["shard"] for entry in entries} == {"resmgr-0"}
    assert min(entry["position"] for entry in entries) == 3
    assert all(entry["facts"] for entry in entries)


def test_one_actor_and_one_task(data: Path) -> None:
    every = [json.loads(line) for line in journal(data, "dump")[1]]
    job = next(e["key"] for e in every if e["key"].startswith("job/") and e["shard"] == "jobmgr-1")
    lines = [json.loads(line) for line in journal(data, "dump", "--key", job)[1]]
    assert lines == [entry for entry in every if entry["key"] == job]
    crowd = next(entry for entry in every if entry.get("members") == "0-1")
    name = crowd["key"].rpartition("/")[0]
    number = int(crowd["key"].rpartition("/")[2])
    second = [json.loads(line) for line in journal(
        data, "dump", "--key", f"{name}/{1000 * number + 1}")[1]]  # fmt: skip
    assert crowd in second
    assert journal(data, "dump", "--key", f"{name}/{1000 * number + 999}")[1] == []


def test_states(data: Path) -> None:
    _, lines, _ = journal(data, "dump", "--states", "--key", "host/a")
    (line,) = lines
    assert json.loads(line)["state"]["state"] == "UP"


def test_figures(data: Path) -> None:
    _, lines, _ = journal(data, "stat", "--json")
    found = {line["shard"]: line for line in map(json.loads, lines)}
    assert found["hostmgr-0"]["last_position"] == 17
    assert found["hostmgr-0"]["tail_frames"] == 2
    assert found["hostmgr-0"]["facts"]["host HostConfigured"] == 2
    assert found["jobmgr-0"]["ended_rows"] == 4
    code, told, _ = journal(data, "stat", "--shard", "hostmgr-0")
    assert code == 0
    assert told[:2] == ["cluster golden", "hostmgr-0  epoch 1, position 17, floor 15"]
    assert "           2 host HostConfigured" in told
    assert found["hostmgr-0"]["cluster"] == "golden"


def test_the_journal_of_a_daemons_config(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "daemon.yaml"
    config.write_text(
        "cluster: golden\njournal: {sqlite: {folder: data}}\n"
        "backend: {simulated: {hosts: [{name: a}]}}\n"
    )
    printed = typed("journal", "check", "--config", str(config), "--shard", "resmgr-0")
    assert (printed.code, printed.out) == (0, "ok      resmgr-0\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["check", "--shard", "jobmgr-7"],
            64,
            "there are hostmgr-0, jobmgr-0 to jobmgr-1, resmgr-0",
        ),
        (["dump", "--key", f"task/{JOB}"], 64, f"'task/{JOB}' is not task/JOB/INSTANCE"),
        (["dump", "--key", f"task/{JOB}/{'9' * 5000}"], 64, "is not task/JOB/INSTANCE"),
        (["dump", "--key", "job/nonsense"], 64, "'nonsense' is not the id of a job"),
        (["dump", "--key", "task/x/7"], 64, "'x' is not the id of a job"),
        (["dump", "--key", "nonsense"], 64, "'nonsense' is not KIND/NAME"),
        (["dump", "--key", "host/"], 64, "'host/' is not KIND/NAME"),
        (["check", "--config", "none.yaml"], 64, "give one of --data-dir and --config"),
    ],
)
def test_wrong_words(data: Path, words: list[str], code: int, said: str) -> None:
    found, _, err = journal(data, *words)
    assert (found, said in err) == (code, True), err


@pytest.mark.parametrize(
    "words", [["--from", "1200"], ["--key", f"job/{JOB}"], ["--key", "host/x"]]
)
def test_an_empty_dump_says_so(data: Path, words: list[str]) -> None:
    assert journal(data, "dump", *words) == (0, [], "peloton journal dump: nothing found\n")


def test_an_id_in_capitals_is_the_same(data: Path) -> None:
    every = [json.loads(line) for line in journal(data, "dump")[1]]
    job = next(e["key"] for e in every if e["key"].startswith("job/"))
    capitals = f"job/{job.partition('/')[2].upper()}"
    assert capitals != job
    assert journal(data, "dump", "--key", capitals) == journal(data, "dump", "--key", job)


def test_both_names_of_a_shard_are_known(data: Path) -> None:
    printed = journal(data, "check", "--shard", "jobmgr/1", "--shard", "jobmgr-1")
    assert printed == (0, ["ok      jobmgr-1"], "")


def test_a_folder_without_a_journal(tmp_path: Path) -> None:
    code, _, err = journal(tmp_path, "check")
    assert code == 66 and err.count("\n") == 1 and "is no data folder" in err


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"x" * 5000)
    code, _, err = journal(tmp_path, "stat")
    assert code == 1 and err.count("\n") == 1 and "not a database" in err


def test_one_damaged_shard_does_not_hide_the_others_from_dump(data: Path) -> None:
    """Frames that do not decode are printed as bytes, and what follows is printed too."""
    where = "shard_group = 'hostmgr' AND position = 15"
    behind(data, f"UPDATE journal SET body = x'c1' WHERE {where}")
    lines = [json.loads(line) for line in journal(data, "dump", "--shard", "hostmgr-0")[1]]
    (broken,) = [line for line in lines if line["position"] == 15]
    assert broken["raw"] == "c1"
    assert lines[-1]["position"] == 17


def witnessed(data: Path) -> None:
    """As a daemon of this version leaves the folder."""
    store = SqliteJournal(data / "journal.sqlite", witness=WitnessOptions(data))
    store.bootstrap({})
    store.close()


REGISTER = "UPDATE register SET {} WHERE shard_group = 'jobmgr' AND shard_number = 1"


@pytest.mark.parametrize(
    "change",
    [
        "last_position = last_position - 1",
        "last_position = last_position + 1",
        "last_chain = CAST(x'00' || substr(last_chain, 2) AS BLOB)",
        "floor = floor + 1",
        "floor = floor - 1",
        "floor_epoch = floor_epoch + 1",
        "epoch = 0",
        "op = x'00'",
    ],
)
def test_no_change_of_a_register_passes(data: Path, change: str) -> None:
    witnessed(data)
    behind(data, REGISTER.format(change))
    code, lines, _ = journal(data, "check")
    assert code == 1
    assert any(line.startswith("wrong   jobmgr-1") for line in lines)
    assert "ok      jobmgr-0" in lines


def test_a_journal_behind_its_witness_is_named_offline(data: Path) -> None:
    witnessed(data)
    assert journal(data, "check")[0] == 0
    path = data / "witness" / "positions"
    found = witness.unpack(path.read_bytes())
    shard = ShardId("jobmgr", 0)
    known = found.known[shard]
    later = known._replace(position=known.position + 7)
    path.write_bytes(witness.pack(found._replace(known={**found.known, shard: later})))
    code, lines, _ = journal(data, "check")
    assert code == 1
    (wrong,) = [line for line in lines if line.startswith("wrong")]
    assert wrong == (
        f"wrong   jobmgr-0: behind its witness: it ends at position {known.position}, "
        f"{known.position + 7} was committed"
    )
    path.write_bytes(b"nonsense")
    assert "wrong   the witness is damaged: it is too short" in journal(data, "check")[1]


def test_a_damaged_page_is_found_offline(data: Path) -> None:
    path = data / "journal.sqlite"
    content = bytearray(path.read_bytes())
    database = sqlite3.connect(path)
    (size,) = database.execute("PRAGMA page_size").fetchone()
    (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ended'").fetchone()
    database.close()
    content[(page - 1) * size + 8] ^= 0xFF  # where its first cell lies
    path.write_bytes(content)
    assert journal(data, "check")[0] == 1
