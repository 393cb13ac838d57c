"""Secrets of jobs on a real Mesos: tasks have them, and no list, file or answer of anybody does.

Each value is a canary, as in `tests/e2e/test_secrets.py`; here it also goes through a master and an
agent, whose lists, logs and folders are searched while the task runs.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from peloton.actors.host.messages import RunEnd, StartRun
from peloton.actors.host.run_spec import SecretRef
from peloton.actors.task.messages import SECRET_NOT_FOUND, SECRETS_UNAVAILABLE, End
from peloton.backends.secrets_first import NOT_ENABLED
from tests.adapters.mesos.mesos_daemon import completed_tasks, job_file, on_mesos, said
from tests.adapters.mesos.mesos_jobs import running
from tests.adapters.mesos.test_mesos_executor import executor_processes
from tests.adapters.test_daemon_wiring import until
from tests.cli.terminal import typed
from tests.conftest import ROOT
from tests.e2e.cluster import until_there
from tests.e2e.test_secrets import SUMS, Canaries, key_file, sums
from tests.servers import mesos_home
from tests.servers.held_secrets import held_secrets
from tests.servers.mesos import PROBE_TIMEOUT_S, Mesos
from tests.servers.mesos_hosts import MesosHosts, framework, order

pytestmark = pytest.mark.timeout(300)
LISTS = ("GET_STATE", "GET_TASKS", "GET_EXECUTORS", "GET_FRAMEWORKS", "GET_OPERATIONS")
PAGES = ("/state", "/state-summary", "/tasks?limit=1000", "/frameworks")


class Sent(Canaries):
    """Canaries that are also looked for as they lie in what our executor is sent: base64 in
    base64."""

    def forms(self) -> Iterator[bytes]:
        for value in self.values:
            inner = base64.b64encode(value)
            for shift in range(3):
                yield base64.b64encode(b"x" * shift + inner)[4:-4]
        yield from super().forms()


class Served(NamedTuple):
    """A Mesos, a daemon with keys at which commands are typed, and what it was given."""

    mesos: Mesos
    folder: Path
    values: Path
    """Of the files with values, which alone have them."""
    canaries: Sent

    def created(self, command: str, *values: bytes, **more: Any) -> str:
        """A job of one instance with these as `token` and `etc/app/key`; its id."""
        file = job_file(self.folder, command, instancecount=1, **more)
        words = []
        for path, value in zip(("token", "/etc/app/key"), values, strict=False):
            source = self.values / f"value-{os.urandom(4).hex()}"
            source.write_bytes(value)
            words += ["--secret-path", path, "--secret-file", str(source)]
        return said("job", "create", "/HelloWorldPool", file, *words).split()[1]

    def answers(self) -> Iterator[tuple[str, bytes]]:
        """All that master and agents show to those who may see everything, and the daemon."""
        for server in (self.mesos.leader(), *self.mesos.agents):
            for page in PAGES:
                yield page, fetched(server.port, page)
            for kind in (*LISTS, "GET_CONTAINERS"):
                yield kind, posted(server.port, kind)
        for words in (("host", "list"), ("job", "query"), ("host", "show", "mesos.h1")):
            yield " ".join(words), said(*words).encode()


def fetched(port: int, path: str) -> bytes:
    """What is answered to a GET; empty for what there is not."""
    url = f"http://127.0.0.1:{port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return b"" if error.code == 404 else error.read()


def posted(port: int, kind: str) -> bytes:
    """The same of a call of operators."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    body = json.dumps({"type": kind}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=PROBE_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:  # the other one of master and agent has that list
        with error:
            return error.read()


def read_by(how: str, path: Path) -> str:
    """The page by which an agent shows a file."""
    return f"/files/{how}?path={urllib.parse.quote(str(path))}&offset=0&length=1000"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    mesos_home.needed_home()
    folder, values = (tmp_path_factory.mktemp(name) for name in ("cluster", "values"))
    keys = key_file(values)
    with (
        pytest.MonkeyPatch.context() as patch,
        on_mesos(folder, patch, keys=keys) as mesos,
    ):
        said("respool", "create", "/HelloWorldPool", str(ROOT / "examples/hello_world_pool.yaml"))
        yield Served(mesos, folder, values, Sent())


def sandbox(served: Served, job: str) -> Path:
    """Of the run of its only instance."""
    (found,) = served.mesos.folder.glob(f"agent*/work/slaves/*/frameworks/**/runs/{job}-0-1")
    return found


@pytest.mark.parametrize("kind", ["BATCH", "SERVICE"])
def test_a_task_has_its_secrets_and_nobody_else(served: Served, kind: str) -> None:
    gate, canaries = served.folder / f"gate-{kind}", served.canaries
    one, two = canaries.draw(), canaries.draw()
    job = served.created(f"{SUMS}; {until_there(gate)}; sleep 1", one, two, type=kind)
    until(lambda: said("task", "list", job), lambda text: "RUNNING" in text)
    until(
        lambda: said("task", "logs", job, "0").splitlines(), lambda lines: lines == sums(one, two)
    )
    assert held_secrets().keys() >= {one, two}
    link = sandbox(served, job) / "token"
    assert link.is_symlink() and link.read_bytes() == one
    for what, answer in served.answers():
        assert answer or what in (*PAGES, "GET_OPERATIONS"), what
        assert not canaries.found_in(answer), what
    for how in ("download", "read"):
        told = [fetched(one.port, read_by(how, link)) for one in served.mesos.agents]
        assert any(b"is inaccessible" in one for one in told), told
        assert not any(canaries.found_in(one) for one in told), how
    checkpointed = 0
    for path in served.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            checkpointed += path.name == "task.info" and job in str(path)
            assert not canaries.found_in(path.read_bytes()), f"{path} has a secret"
    assert checkpointed == 1, "the agent has noted the task, without what it was told"
    if kind == "SERVICE":
        said("job", "stop", job)
    gate.touch()
    said("job", "wait", job) if kind == "BATCH" else until(
        lambda: "KILLED" in said("task", "list", job)
    )
    assert not link.exists() and link.is_symlink()
    assert not held_secrets().keys() & {one, two}
    shown = said("job", "get", job)
    assert "token" in shown and not canaries.found_in(shown.encode())
    assert completed_tasks(served.mesos, job)


def test_a_daemon_without_a_key_takes_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesos_home.needed_home()
    with on_mesos(tmp_path, monkeypatch):
        said("respool", "create", "/HelloWorldPool", str(ROOT / "examples/hello_world_pool.yaml"))
        value = tmp_path / "value"
        value.write_text("x")
        words = ("--secret-path", "token", "--secret-file", str(value))
        refused = typed("job", "create", "/HelloWorldPool", job_file(tmp_path, "true"), *words)
        assert refused.code != 0 and "secrets not supported by cluster" in refused.err


# ---- without a daemon ----

WITH = (SecretRef("s-1", "token"),)


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    with running(tmp_path / "mesos", agents=1) as found:
        yield found


def one_value(value: bytes) -> Any:
    """A store that has this, and nothing else."""

    def read(job: str, wanted: Collection[str]) -> Mapping[str, bytes]:
        return {name: value for name in wanted if name == "s-1"}

    return read


def end_of(hosts: MesosHosts, run: StartRun) -> RunEnd:
    (end,) = hosts.wait_ended(hosts.start(hosts.host(), run))
    return end


def test_without_a_key_or_a_value_a_run_ends_as_on_any_host(mesos: Mesos) -> None:
    with MesosHosts(framework(mesos.address)) as hosts:
        outcome = end_of(hosts, order("true", secrets=WITH)).outcome
        assert (outcome.end, outcome.reason) == (End.KILLED, SECRETS_UNAVAILABLE)
        assert outcome.system and outcome.message == NOT_ENABLED
        assert end_of(hosts, order("exit 3")).outcome.exit_code == 3
    with MesosHosts(framework(mesos.address), read=one_value(b"x")) as hosts:
        run = order("true", secrets=(SecretRef("s-2", "token"),))
        outcome = end_of(hosts, run).outcome
        assert (outcome.end, outcome.reason) == (End.KILLED, SECRET_NOT_FOUND)
        assert not outcome.system and "s-2" in outcome.message


@pytest.mark.parametrize("which", ["executor", "both"])
def test_what_a_killed_executor_has_left_is_removed(
    mesos: Mesos, tmp_path: Path, which: str
) -> None:
    """By its guardian, or by the next executor."""
    value, gate = os.urandom(24), tmp_path / "never"
    with MesosHosts(framework(mesos.address), read=one_value(value)) as hosts:
        names = hosts.start(hosts.host(), order(until_there(gate), secrets=WITH))
        hosts.wait_started(names)
        file = held_secrets()[value]
        guardian, executor = executor_processes(mesos.folder)
        if which == "both":
            os.kill(guardian, signal.SIGSTOP)
        os.kill(executor, signal.SIGKILL)
        if which == "both":
            os.kill(guardian, signal.SIGKILL)
        assert hosts.wait_ended(names)[0].outcome.end is End.LOST
        # What comes just as the executor ends is lost, and placed anew.
        again = f'[ "$(sha256sum < token)" = "{sums(value)[0]}" ]'
        outcome = until(
            lambda: end_of(hosts, order(again, secrets=WITH)).outcome,
            lambda found: not found.system,
        )
        assert outcome.end is End.SUCCEEDED
        until(lambda: not file.parent.parent.exists())
