"""Secrets of runs in the hands of a keeper: where they lie, who can read them, when they are gone.

Real files; no process is started.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peloton.backends.keeper import kinds, secret_files
from peloton.backends.keeper.engine import ContainerRefused, ContainerSettings, create_arguments
from peloton.backends.keeper.kinds import KeeperRun
from peloton.backends.keeper.secret_files import RunSecret, SecretFiles, path_problem
from peloton.backends.keeper_messages import RunRequest
from tests.backends.keeper.test_disk import HOST, REQUEST, Keeper

VALUE = b"\x00 a value \xff"


def run_with(*paths: str, run_id: str = "r-0-1", container: bool = False) -> KeeperRun:
    run = KeeperRun(run_id, "host-1", command={}, memory_mb=0.0)
    run.secrets = tuple(RunSecret(path, VALUE) for path in paths)
    run.container = {"engine": "/usr/bin/podman", "image": "debian"} if container else {}
    return run


class Place_:
    """A keeper's folder and one that is taken for memory."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.memory = tmp_path / "keeper", tmp_path / "memory"
        for one in (self.folder / "runs" / "r-0-1", self.memory):
            one.mkdir(parents=True)
        self.sandbox = self.folder / "runs" / "r-0-1"
        self.files = self.again()

    def again(self) -> SecretFiles:
        return SecretFiles(str(self.folder), lambda: "k1", memory=str(self.memory))

    def put(self, run: KeeperRun) -> None:
        self.files.put(run, f"runs/{run.run_id}")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place_:
    made = Place_(tmp_path)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"tmpfs {made.memory} tmpfs rw 0 0\n")
    monkeypatch.setattr(secret_files, "MOUNTS", str(mounts))
    return made


def test_a_run_finds_its_secrets_below_its_sandbox(place):
    place.put(run_with("token", "/etc/app/key", "./deep/er/one"))
    for path in ("token", "etc/app/key", "deep/er/one"):
        assert (place.sandbox / path).read_bytes() == VALUE
        assert (place.sandbox / path).is_symlink()
    held = sorted((place.memory / "peloton-k1" / "r-0-1").iterdir())
    assert [one.name for one in held] == ["0", "1", "2"]
    assert {stat.S_IMODE(one.stat().st_mode) for one in held} == {0o400}
    for folder in (held[0].parent, held[0].parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_end_of_a_run_leaves_nothing(place):
    place.put(run_with("token"))
    place.files.drop("r-0-1")
    assert [*place.memory.iterdir()] == []
    assert not (place.sandbox / "token").exists()
    place.files.drop("r-0-1")


def test_without_memory_the_disk_has_to_do(place, tmp_path):
    (tmp_path / "mounts").write_text(f"/dev/sda {place.memory} ext4 rw 0 0\n")
    place.put(run_with("token"))
    assert (place.sandbox / "token").read_bytes() == VALUE
    assert [*place.memory.iterdir()] == []
    assert (place.folder / "secrets" / "r-0-1" / "0").exists()
    place.files.drop("r-0-1")
    assert not (place.folder / "secrets").exists()


def test_a_file_in_the_place_of_our_folder_is_not_followed(place, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place.memory / "peloton-k1").symlink_to(elsewhere)
    place.put(run_with("token"))
    assert [*elsewhere.iterdir()] == []
    assert (place.folder / "secrets" / "r-0-1" / "0").exists()


def test_a_successor_removes_what_ended_without_it(place):
    place.put(run_with("token"))
    (place.folder / "runs" / "r-0-2").mkdir()
    place.put(run_with("token", run_id="r-0-2"))
    successor = place.again()
    successor.sweep({"r-0-2"})
    assert [one.name for one in (place.memory / "peloton-k1").iterdir()] == ["r-0-2"]
    successor.drop("r-0-2")
    assert [*place.memory.iterdir()] == []


def test_a_container_has_them_at_their_paths(place):
    run = run_with("token", "/etc/app/key", container=True)
    run.command |= {"value": "true", "shell": True, "arguments": []}
    place.put(run)
    held = place.memory / "peloton-k1" / "r-0-1"
    arguments = create_arguments(run, ContainerSettings("k1", str(place.sandbox), {}))
    assert f"--volume={held}/0:/mnt/mesos/sandbox/token:ro" in arguments
    assert f"--volume={held}/1:/etc/app/key:ro" in arguments
    assert [*place.sandbox.iterdir()] == []


def test_a_path_that_an_engine_cannot_mount_is_refused(place):
    run = run_with("a:b", container=True)
    run.command |= {"value": "true", "shell": True, "arguments": []}
    place.put(run)
    with pytest.raises(ContainerRefused, match="colon"):
        create_arguments(run, ContainerSettings("k1", str(place.sandbox), {}))


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("token", ""),
        ("/etc/app/key", ""),
        ("a/./b", ""),
        ("stdout.key", ""),
        ("", "names no file"),
        ("/", "names no file"),
        ("folder/", "names no file"),
        ("../token", "leaves the sandbox"),
        ("a/../../b", "leaves the sandbox"),
        ("a\0b", "has a character"),
        ("x" * 2000, "has 2000 characters"),
        ("/stdout", "is the log"),
    ],
)
def test_paths(path, wrong):
    found = path_problem(path)
    assert found.startswith(wrong) if wrong else found == ""


# ---- from the wire ----


def request(*secrets: tuple[str, bytes], **more: object) -> dict[str, object]:
    files = [[path, base64.b64encode(data).decode()] for path, data in secrets]
    return {**REQUEST, "secrets": {"memory_mb": 0, "files": files, **more}}


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Keeper]]:
    monkeypatch.chdir(tmp_path)
    yield lambda: Keeper(tmp_path)


def launch(one: Keeper, asked: dict[str, object]) -> None:
    one.runs.launch(HOST, [{**asked, "run": "r-0-1"}])
    one.runs.commit()


def ends(one: Keeper) -> list[tuple[str, str, str]]:
    events, one.runs.events = one.runs.events, []
    found = [event for _, event in events if event["a"] == "ended"]
    return [(event["outcome"], event["reason"], event["message"]) for event in found]


def test_a_launch_writes_them_and_the_journal_does_not_have_them(keeper, tmp_path):
    one = keeper()
    launch(one, request(("token", VALUE)))
    assert (tmp_path / "runs/r-0-1/token").read_bytes() == VALUE
    assert one.runs.memory.runs["r-0-1"].secrets == ()
    for form in (VALUE, base64.b64encode(VALUE), VALUE.hex().encode()):
        assert form not in (tmp_path / "journal").read_bytes()
    one.end("r-0-1")
    one.runs.commit()
    assert not (tmp_path / "runs/r-0-1/token").exists()


def test_a_refusal_is_the_end_of_a_new_run_and_nothing_to_a_known_one(keeper):
    refusal = ["KILLED", "REASON_SECRET_NOT_FOUND", "secret s for token is not there"]
    one = keeper()
    launch(one, request(refusal=refusal))
    assert one.spawner.spawned == []
    assert ends(one) == [tuple(refusal)]
    again = keeper()
    launch(again, request(("token", VALUE)))
    assert ends(again) == [tuple(refusal)], "the end is in the journal"


def test_a_known_run_goes_on_whatever_a_repeat_says(keeper):
    one = keeper()
    launch(one, request(("token", VALUE)))
    launch(one, request(refusal=["KILLED", "x", "y"]))
    assert one.told() == [("started", "r-0-1")] * 2
    one.end("r-0-1")


def test_a_wrong_path_fails_its_run_and_quotes_no_value(keeper):
    one = keeper()
    launch(one, request(("../token", VALUE)))
    ((outcome, reason, message),) = ends(one)
    assert (outcome, reason) == (kinds.FAILED, kinds.NOT_RUNNABLE)
    assert "'../token'" in message and base64.b64encode(VALUE).decode() not in message


def test_a_request_does_not_show_its_values():
    asked = RunRequest("r-0-1", HOST, "true", secrets=(RunSecret("token", VALUE),))
    assert "a value" not in repr(asked)
    assert os.fsencode(repr(RunSecret("token", VALUE))) == b"RunSecret('token')"
