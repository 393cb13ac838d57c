"""What operators do to a fleet under load, as `script/nemesis --planned` does it.

The long test does it to real daemons: one is added, one is taken out, all are upgraded to a version
with more fields and back again, while clients note what they hear; that nothing is found, that the
other version really took part, and that nothing is left. Before it, in no time: that what it
measures with would notice.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from peloton.actors.host.facts import RunsForgotten
from peloton.assembly.kinds import kinds
from peloton.chaos.nemesis.census import Census
from peloton.chaos.nemesis.journal import SHARD_IDS, again
from peloton.chaos.nemesis.probe import Probe
from peloton.chaos.nemesis.proxy import Door
from peloton.chaos.nemesis.takeovers import takeover_mark
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.core.entities.codec import FRAME_FORMAT, Codec
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.owning.ownership import ranked
from peloton.runtime.ports import MemberNode, ShardId
from peloton.settings.daemon import ALONE_SHARDS
from tests.e2e.cluster import wait_for
from tests.e2e.later import CHANGES, FIELDS, SAID, later_copy
from tests.e2e.storms import WITHIN_S, left_over, nemesis

WORDS = "add,remove,upgrade,downgrade"
SHARD = ShardId("jobmgr", 1)
ROLES = ("jobmgr", "resmgr", "hostmgr")


class Lived:
    """As much of a daemon as a census asks for."""

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid


# ---- who owns what ----


def census(owner_epoch: int = 1, *, members: tuple[str, ...] = ("x-1-a.1", "x-2-b.1")) -> Census:
    """All shards where they belong."""
    nodes = {name: MemberNode("", ROLES) for name in members}
    owners = {shard: ranked(shard, nodes)[0] for shard in SHARD_IDS}
    return Census(nodes, owners, dict.fromkeys(SHARD_IDS, owner_epoch))


def test_at_rest_all_and_only_they_are_there_and_each_shard_is_its_firsts() -> None:
    one, two, three = Lived("one", 1), Lived("two", 2), Lived("three", 3)
    there = census()
    assert there.missing([one, two]) == ""  # type: ignore[list-item]
    assert "members" in there.missing([one])  # type: ignore[list-item]
    assert "members" in there.missing([one, two, three])  # type: ignore[list-item]
    other = next(name for name in there.members if name != there.owners[SHARD])
    elsewhere = there._replace(owners={**there.owners, SHARD: other})
    assert elsewhere.missing([one, two]).startswith("jobmgr-1 is")  # type: ignore[list-item]
    assert takeover_mark(one) in other or takeover_mark(two) in other  # type: ignore[arg-type]


def test_a_shard_that_moved_has_a_later_epoch() -> None:
    before = census(owner_epoch=1)
    owners = {**before.owners, SHARD: "another"}
    assert before.moved(before) == ([], [])
    assert before._replace(owners=owners).moved(before)[1] != []
    later = {**before.epochs, SHARD: 2}
    assert before._replace(owners=owners, epochs=later).moved(before) == ([SHARD], [])
    assert census(owner_epoch=0).moved(before)[1] != []


# ---- how long nobody answers ----


def test_a_silence_counts_from_answer_to_answer(tmp_path: Path) -> None:
    probe = Probe(None, Timeline(tmp_path / "log"))  # type: ignore[arg-type]
    probe._answers = {SHARD: [1.0, 2.0, 5.5, 6.0, 9.0]}
    assert probe.silences(5.0, 6.5) == {SHARD: 3.5}
    assert probe.silences(6.5, 8.0) == {SHARD: 2.0}
    assert probe.answered_since(8.0) and not probe.answered_since(9.0)


# ---- a pair that is parted ----


def serve(listener: socket.socket) -> None:
    """Say back what is said."""

    def echo(one: socket.socket) -> None:
        with contextlib.suppress(OSError):  # shut out while it spoke
            while data := one.recv(100):
                one.sendall(data)

    while True:
        try:
            one, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=echo, args=(one,), daemon=True).start()


VISITOR = """
import socket, sys
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for line in sys.stdin:
    there.sendall(line.encode())
    print("heard" if there.recv(100) else "ended", flush=True)
"""


def test_a_door_shuts_out_one_process_and_no_other() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    door = Door(listener.getsockname()[1])
    visitor = subprocess.Popen(
        [sys.executable, "-c", VISITOR, str(door.port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert visitor.stdin is not None and visitor.stdout is not None
    try:
        visitor.stdin.write("hello\n")
        assert visitor.stdout.readline() == "heard\n"
        with socket.create_connection(("127.0.0.1", door.port)) as ours:
            ours.settimeout(60)
            door.part(visitor.pid, silent=True)
            ours.sendall(b"hello")
            assert ours.recv(100) == b"hello", "ours is another process"
            visitor.stdin.write("hello\n")
            door.mend()
            assert visitor.stdout.readline() == "heard\n", "what waited arrives"
            door.part(visitor.pid, silent=False)
            ours.sendall(b"hello")
            assert ours.recv(100) == b"hello"
            visitor.stdin.write("hello\n")
            visitor.stdin.close()
            assert "heard" not in visitor.stdout.read()
    finally:
        visitor.kill()
        visitor.wait()
        visitor.stdout.close()
        door.close()
        listener.close()


# ---- another version ----


def test_a_frame_of_a_later_version_is_told_from_ours() -> None:
    known = kinds(ALONE_SHARDS)
    codec = Codec(known)
    number = next(n for n, cls in known["host"].facts.items() if cls is RunsForgotten)
    for fact, foreign in (([["a"]], False), ([["a"], "a mark"], True)):
        row = encode(("host/a", [(number, fact)], b"", (), "", "", ""))
        body = encode((FRAME_FORMAT, 1.0, [msgspec.Raw(row)]))
        assert (again(codec, body) != body) is foreign


def test_the_later_version_can_be_made(tmp_path: Path) -> None:
    folder = later_copy(tmp_path)
    texts = [(name, new) for name, _, new in CHANGES] + [(name, field) for name, _, field in FIELDS]
    for name, text in texts:
        assert text in (folder / "peloton" / name).read_text(encoding="utf-8")


# ---- all of it ----


@pytest.mark.nightly
@pytest.mark.timeout(WITHIN_S + 30)
def test_nothing_is_found_after_what_operators_do(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "planned"
    line = nemesis(root, "--planned", WORDS, folder=folder)
    assert "; 0 lost, 0 findings; " in line, line
    for word in WORDS.split(","):
        assert f"1 {word}" in line and f"; {word}: " in line, line
    later = re.search(r"\((\d+) of a later version\)", line)
    assert later is not None and int(later[1]) > 0, "its facts are in the journals"
    logs = [log.read_text(errors="replace") for log in folder.glob("d*.log")]
    assert sum(SAID in log for log in logs) >= 2, "its messages reached placers"
    wait_for(lambda: not left_over(folder), "what was killed to be gone")
