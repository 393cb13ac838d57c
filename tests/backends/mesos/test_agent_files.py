"""The files of runs on agents: where they are looked for, what is refused, and agents that fail.

A scripted agent says what a real one would not say on demand;
`tests/adapters/mesos/test_mesos_files.py` reads real ones.
"""

from __future__ import annotations

import base64
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.backends.mesos import agent_files
from peloton.backends.mesos.agent_files import AgentFiles
from peloton.backends.mesos.masters import operator_api
from peloton.backends.mesos.masters.agent_book import AgentBook
from peloton.backends.mesos.masters.leading_master import LeadingMaster
from peloton.backends.mesos.masters.operator_api import Credential, HttpDoor, NoAnswer, OperatorApi
from peloton.gateway.access.file_links import FileLinks
from peloton.gateway.cluster.files_anywhere import FilesAnywhere
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.runtime.far_files import FarRun, FilesAway, FilesRemoved, NoFile
from tests.servers.scripted_agent import ScriptedAgent, scripted

FRAMEWORK = "ours"
RUN = "6b3f0a1e-93a5-5d09-9b0a-3f2f5a1f7c11-0-1"
ON_H1 = FarRun("west.h1", RUN)
NOBODY = Credential()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.fixture
def agent() -> Iterator[ScriptedAgent]:
    with scripted(FRAMEWORK) as found:
        found.folders[found.sandbox(RUN)] = {"stdout": b"hello\n", "deep": stat.S_IFDIR | 0o755}
        yield found


def files(agent: ScriptedAgent, *, credential: Credential = NOBODY) -> AgentFiles:
    book = AgentBook(LeadingMaster(agent.address, credential))
    return AgentFiles(
        "west", book, framework=FRAMEWORK, credential=credential
    )  # fmt: skip


def read(found: AgentFiles, *parts: str, run: FarRun = ON_H1) -> bytes:
    with found.open(run, parts) as file:
        return file.read(0, file.size)


def test_a_file_and_a_listing(agent: ScriptedAgent) -> None:
    agent.folders[agent.sandbox(RUN) + "/deep"] = {"file": b"inside"}
    found = files(agent)
    assert found.has_host("west.h1") and not found.has_host("westh1")
    assert read(found, "stdout") == b"hello\n" and read(found, "deep", "file") == b"inside"
    entry = found.listing(ON_H1, ())[1]
    assert entry == ("stdout", 6, 1.5, stat.S_IFREG | 0o644, 1, "nobody", "nogroup")
    assert [entry.name for entry in found.listing(ON_H1, ("deep",))] == ["file"]
    assert found.manager() == ("127.0.0.1", str(agent.port))


def test_a_file_is_read_in_pieces_that_an_agent_sends(agent: ScriptedAgent) -> None:
    whole = bytes(range(256)) * 1000
    agent.folders[agent.sandbox(RUN)]["stdout"] = whole
    here = SandboxFiles(None, ("127.0.0.1", 1))
    with FilesAnywhere(here, [files(agent)]).open(f"/{RUN}@west.h1/stdout") as file:
        assert (file.size, b"".join(file.pieces(0))) == (len(whole), whole)
        assert b"".join(file.pieces(len(whole) - 3)) == whole[-3:]
    lengths = [call["read_file"]["length"] for call in agent.asked if call["type"] == "READ_FILE"]
    assert max(lengths) <= agent_files.READ_BYTES_MAX


def test_a_run_among_the_tasks_of_an_executor_has_a_folder_in_its_sandbox(
    agent: ScriptedAgent,
) -> None:
    run = RUN[:-1] + "7"
    agent.executors = [RUN, "one", "many"]
    agent.folders[agent.sandbox("many") + f"/runs/{run}"] = {"stdout": b"of many"}
    found = files(agent)
    assert read(found, "stdout", run=FarRun("west.h1", run)) == b"of many"
    before = len(agent.asked)
    assert read(found, "stdout", run=FarRun("west.h1", run)) == b"of many"
    assert len(agent.asked) == before + 3, "it is remembered where that is"
    # Of an earlier executor with the same id.
    agent.ended = [(1, "many"), (2, "many"), (3, RUN)]
    agent.folders[f"/work/many/1/runs/{RUN[:-1]}8"] = {"stdout": b"earlier"}
    assert read(found, "stdout", run=FarRun("west.h1", RUN[:-1] + "8")) == b"earlier"


def test_a_run_with_an_executor_of_its_own_has_the_sandbox_of_that(agent: ScriptedAgent) -> None:
    run = RUN[:-1] + "7"
    agent.executors = [RUN, f"thermos-{run}"]
    agent.folders[agent.sandbox(f"thermos-{run}")] = {"stdout": b"of its own"}
    found = files(agent)
    assert read(found, "stdout", run=FarRun("west.h1", run)) == b"of its own"
    before = len(agent.asked)
    with pytest.raises(FilesRemoved):
        found.listing(FarRun("west.h1", RUN[:-1] + "8"), ())
    kinds = [call["type"] for call in agent.asked[before:]]
    assert kinds == ["LIST_FILES", "LIST_FILES", "state"], "it has no tasks of others"


def test_each_agent_of_a_machine_is_looked_at(agent: ScriptedAgent) -> None:
    """Whichever is the host: the other may have been it, and has what ran there then."""
    with scripted(FRAMEWORK) as other:
        there = {"agent_info": {"hostname": "h1"}, "pid": f"slave(1)@{other.address}"}
        agent.before = [there]
        run = FarRun("west.h1", RUN[:-1] + "7")
        other.folders[other.sandbox(run.run)] = {"stdout": b"of the other"}
        found = files(agent)
        assert read(found, "stdout") == b"hello\n"
        assert read(found, "stdout", run=run) == b"of the other"
        before = len(other.asked)
        assert read(found, "stdout") == b"hello\n" and len(other.asked) == before, "remembered"
        with pytest.raises(FilesRemoved):
            read(found, "stdout", run=FarRun("west.h1", RUN[:-1] + "8"))
        other.broken = lambda call: b""
        with pytest.raises(FilesAway):
            read(found, "stdout", run=FarRun("west.h1", RUN[:-1] + "8"))
        assert read(files(agent), "stdout") == b"hello\n", "one that is away keeps nothing away"


def test_an_agent_that_cannot_be_read_keeps_no_other_away(agent: ScriptedAgent) -> None:
    agent.before = [7, {}, {"agent_info": {"hostname": "h1"}}, {"pid": "slave(1)@127.0.0.1:1"}]
    assert read(files(agent), "stdout") == b"hello\n"


def test_a_run_of_several_containers_has_the_sandbox_of_their_executor(
    agent: ScriptedAgent,
) -> None:
    run = RUN[:-1] + "7"
    far, pod = FarRun("west.h1", run), f"{run}.0.2"
    shared = agent.sandbox(pod)
    agent.executors = ["many", f"{RUN}.0.2", pod]
    agent.folders[shared] = {"stdout": b"", "tasks": stat.S_IFDIR | 0o755}
    agent.folders[f"{shared}/tasks/{run}.1.2"] = {"stdout": b"of the second", "d": stat.S_IFDIR}
    found = files(agent)
    assert len(found.listing(far, [])) == 2, "the executor is there, and no container yet"
    agent.tasks[pod] = {f"{run}.1.2": "side", run: "web"}
    assert read(found, "side.stdout", run=far) == b"of the second"
    assert [one.name for one in found.listing(far, [])] == ["stdout", "tasks", "side.stdout"]
    asked = [call["list_files"]["path"] for call in agent.asked if call["type"] == "LIST_FILES"]
    assert shared in asked and not [path for path in asked if RUN in path or "many" in path]
    agent.folders[f"{shared}/tasks/{run}"] = {"stdout": b"of the first"}
    assert read(found, "web.stdout", run=far) == b"of the first", "it has begun"


def test_executors_of_several_containers_hide_no_other(agent: ScriptedAgent) -> None:
    run = RUN[:-1] + "7"
    pods = [f"{RUN}{at}.0.2" for at in range(agent_files.EXECUTORS_MAX)]
    agent.executors = [*pods, "many"]
    agent.folders[agent.sandbox("many") + f"/runs/{run}"] = {"stdout": b"of many"}
    assert read(files(agent), "stdout", run=FarRun("west.h1", run)) == b"of many"


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFDIR, stat.S_IFSOCK, stat.S_IFCHR])
def test_only_regular_files_are_asked_for(agent: ScriptedAgent, kind: int) -> None:
    """An agent would wait for the writer of a pipe."""
    agent.folders[agent.sandbox(RUN)]["it"] = kind | 0o644
    with pytest.raises(NoFile):
        read(files(agent), "it")
    assert "READ_FILE" not in {call["type"] for call in agent.asked}


@pytest.mark.parametrize(
    "path",
    ["x@west.h1/stdout", f"{RUN}@west.h1", f"{RUN}@west.h1/../stdout", f"{RUN}@west.h1/./stdout",
     f"{RUN}@west.h1/none", "..@west.h1/stdout", f"{RUN}@east.h1/stdout", "@west.h1/stdout",
     f"{RUN}@west.h1/deep/none"],
)  # fmt: skip
def test_what_is_no_file_of_a_run(agent: ScriptedAgent, path: str) -> None:
    anywhere = FilesAnywhere(SandboxFiles(None, ("127.0.0.1", 1)), [files(agent)])
    with pytest.raises(NoFile), anywhere.open(f"/{path}"):
        pass
    asked = [call["list_files"]["path"] for call in agent.asked if call["type"] == "LIST_FILES"]
    assert all(".." not in each and each.startswith(agent.sandbox(RUN)) for each in asked)


def test_paths_that_clients_are_told_are_signed_with_the_host(agent: ScriptedAgent) -> None:
    links = FileLinks()
    anywhere = FilesAnywhere(SandboxFiles(None, ("127.0.0.1", 1), links=links), [files(agent)])
    far = anywhere.far_of("west.h1")
    assert far is not None and anywhere.far_of("h1") is None
    (path,) = anywhere.far_paths(far, ON_H1, over=True)
    signed = links.opened(path)
    assert signed is not None and signed.path == f"/{RUN}@west.h1/stdout"
    assert links.opened(path.replace("west.h1", "west.h2")) is None
    later = FarRun("west.h1", RUN[:-1] + "2")
    assert len(anywhere.far_paths(far, later, over=False)) == 2, "it may yet begin"
    with pytest.raises(FilesRemoved):
        anywhere.far_paths(far, later, over=True)


def test_what_the_agent_has_removed(agent: ScriptedAgent) -> None:
    found = files(agent)
    assert read(found, "stdout") == b"hello\n"
    agent.folders.clear()
    for _ in range(2):
        with pytest.raises(FilesRemoved, match=f"host west.h1 has no files of run {RUN}"):
            read(found, "stdout")


def test_a_host_that_the_master_does_not_know(agent: ScriptedAgent) -> None:
    with pytest.raises(FilesAway, match="west.h9: no such agent is registered"):
        read(files(agent), "stdout", run=FarRun("west.h9", RUN))
    agent.close()
    with pytest.raises(FilesAway, match="the master does not say"):
        read(files(agent), "stdout")


def test_an_agent_that_moved_is_found_again(agent: ScriptedAgent) -> None:
    with scripted(FRAMEWORK) as other:
        other.folders = dict(agent.folders)
        found = files(agent)
        assert read(found, "stdout") == b"hello\n"
        agent_answer, agent.broken = agent.broken, lambda call: b"" if "file" in str(call) else None
        with pytest.raises(FilesAway, match="agent of host west.h1"):
            read(found, "stdout")
        agent.broken, asked = agent_answer, len(agent.asked)
        read(found, "stdout")
        assert agent.asked[asked]["type"] == "GET_AGENTS"


BROKEN = {
    "nothing": (b"", "agent of host west.h1"),
    "cut in its head": (HEAD[:20], "agent of host west.h1"),
    "cut": (HEAD + b'{"li', "broke off"),
    "no JSON": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz", "something else than JSON"),
    "other words": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "words that we do not know"),
    "an error": (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nwhy?", "500 Oops: why?"),
    "no HTTP": (b"hello\r\n\r\n", "agent of host west.h1"),
    "starting": (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "503"),
}


@pytest.mark.parametrize("call", ["LIST_FILES", "READ_FILE"])
@pytest.mark.parametrize("how", BROKEN)
def test_answers_that_go_wrong(agent: ScriptedAgent, how: str, call: str) -> None:
    answer, text = BROKEN[how]
    agent.broken = lambda asked: answer if asked["type"] == call else None
    with pytest.raises(FilesAway, match=text):
        read(files(agent), "stdout")


def test_a_stream_that_is_cut_later(agent: ScriptedAgent) -> None:
    with files(agent).open(ON_H1, ("stdout",)) as file:
        assert file.read(0, 2) == b"he"
        agent.broken = lambda call: HEAD + b"x"
        with pytest.raises(FilesAway, match="broke off"):
            file.read(2, 2)
        agent.broken = lambda call: None
    with files(agent).open(ON_H1, ("stdout",)) as file:
        agent.folders.clear()
        with pytest.raises(NoFile):
            file.read(0, 2)


@pytest.mark.parametrize("call", ["GET_AGENTS", "LIST_FILES", "READ_FILE"])
def test_an_agent_that_is_silent_is_given_up(agent: ScriptedAgent, call: str) -> None:
    agent.silent_for = {call}
    book = AgentBook(LeadingMaster(agent.address, NOBODY, timeout_s=0.2))
    found = AgentFiles("west", book, framework=FRAMEWORK, credential=NOBODY, timeout_s=0.2)
    with pytest.raises(FilesAway, match="does not answer in time"):
        read(found, "stdout")


def test_an_answer_that_drips_is_given_up(
    agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_api, "ANSWER_S_MAX", 0.0)
    with pytest.raises(FilesAway, match="does not answer in time"):
        read(files(agent), "stdout")


def test_answers_are_bounded(agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_files, "LISTING_BYTES_MAX", 100)
    with pytest.raises(FilesAway, match="more than 100 bytes"):
        read(files(agent), "stdout")


def test_an_agent_that_sends_more_than_it_was_asked_for(agent: ScriptedAgent) -> None:
    data = base64.b64encode(b"more than four").decode()
    body = json.dumps({"read_file": {"size": 14, "data": data}}).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with files(agent).open(ON_H1, ("stdout",)) as file:
        agent.broken = lambda call: answer
        assert file.read(0, 4) == b"more"


def test_agents_want_a_credential(agent: ScriptedAgent) -> None:
    word = base64.b64encode(b"reader:pass word").decode()
    known = Credential("reader", "pass word")
    agent.authorization = f"Basic {word}"
    assert read(files(agent, credential=known), "stdout") == b"hello\n"
    for wrong in (Credential(), Credential("reader", "other")):
        book = AgentBook(LeadingMaster(agent.address, known))
        found = AgentFiles("west", book, framework=FRAMEWORK, credential=wrong)
        with pytest.raises(FilesAway, match="401 Unauthorized; .*agent_secret_file") as said:
            read(found, "stdout")
        assert "other" not in str(said.value)
    assert "pass word" not in repr(known)


def test_a_master_that_does_not_lead_says_who_does(agent: ScriptedAgent) -> None:
    with scripted(FRAMEWORK) as standby:
        there = f"Location: //{agent.address}/api/v1\r\nContent-Length: 0\r\n\r\n".encode()
        standby.broken = lambda call: b"HTTP/1.1 307 Temporary Redirect\r\n" + there
        book = AgentBook(LeadingMaster(standby.address, NOBODY))
        found = AgentFiles("west", book, framework=FRAMEWORK, credential=NOBODY)
        assert read(found, "stdout") == b"hello\n"
        assert found.manager() == ("127.0.0.1", str(agent.port))
    with scripted(FRAMEWORK) as lost:
        lost.broken = lambda call: (
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: //\r\nContent-Length: 0\r\n\r\n"
        )
        with pytest.raises(NoAnswer, match="does not lead"):
            AgentBook(LeadingMaster(lost.address, NOBODY)).door_of("h1")


def test_the_master_is_asked_once_for_many(agent: ScriptedAgent) -> None:
    now = [0.0]
    book = AgentBook(LeadingMaster(agent.address, NOBODY), clock=lambda: now[0])
    threads = [threading.Thread(target=book.door_of, args=("h1",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(agent.asked) == 1 and book.door_of("h2") is None
    agent.hostnames = ["h2"]
    assert book.door_of("h2") is None
    now[0] = 3.0
    assert book.door_of("h2") == HttpDoor("127.0.0.1", agent.port, "h2")
    assert len(agent.asked) == 2
    now[0] = 40.0
    assert book.door_of("h2") is not None and len(agent.asked) == 3


def test_no_master_in_zookeeper() -> None:
    with pytest.raises(
        NoAnswer, match="no master to be found in ZooKeeper at 127.0.0.1:1: "
    ) as said:
        place = "zk://user:pass@127.0.0.1:1/mesos"
        AgentBook(LeadingMaster(place, NOBODY, zookeeper_s=0.5)).door_of("h1")
    assert "pass" not in str(said.value)


def test_the_api_can_be_asked_again_after_a_failure(agent: ScriptedAgent) -> None:
    api = OperatorApi(HttpDoor("127.0.0.1", agent.port), NOBODY)
    agent.broken = lambda call: HEAD
    with pytest.raises(NoAnswer):
        api.ask({"type": "GET_AGENTS"})
    agent.broken = lambda call: None
    assert "get_agents" in api.ask({"type": "GET_AGENTS"})
    api.close()


def test_files_of_the_secrets_of_agents(tmp_path: Path) -> None:
    from peloton.assembly.mesos_access import far_files, framework_id
    from peloton.failures import CannotStart
    from peloton.settings.backend import BackendSetting, MesosBackendSettings

    assert far_files(BackendSetting(), None) == ()  # type: ignore[arg-type]
    file = tmp_path / "secret"
    setting = MesosBackendSettings(
        master="127.0.0.1:5050", framework="x", agent_principal="p", agent_secret_file=file
    )
    with pytest.raises(CannotStart, match=r"backend\.mesos\.agent_secret_file"):
        far_files(BackendSetting(mesos=setting), None)  # type: ignore[arg-type]
    file.write_text("s\n")
    file.chmod(0o600)
    other = MesosBackendSettings(master="127.0.0.1:5051", name="east", framework="y")
    found = far_files(BackendSetting(mesos=[setting, other]), None)  # type: ignore[arg-type]
    assert [each.has_host("mesos.h1") for each in found] == [True, False]
    assert [each.has_host("east.h1") for each in found] == [False, True]
    assert framework_id(setting, None) == "x"  # type: ignore[arg-type]
