"""The files of tasks on a real Mesos: listed, read and followed, through the daemon and its words.

One daemon on two agents for all of them.
"""

from __future__ import annotations

import json
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from peloton.sdk.client import Client
from peloton.sdk.errors import ServiceUnavailable
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_fleet_words import foreground
from tests.cli.terminal import typed
from tests.conftest import ROOT
from tests.e2e.cluster import until_there
from tests.servers import mesos_home
from tests.servers.mesos import ROOMY, Mesos

pytestmark = pytest.mark.timeout(180)
BYTES = bytes(range(256)) * 1500
"""More than an agent sends at once, and no text."""


class Served(NamedTuple):
    """A daemon on a Mesos, and where it serves."""

    address: str
    mesos: Mesos
    folder: Path

    def job(self, shell: str, *, instances: int = 1, **more: Any) -> str:
        """A job whose tasks do this; its id."""
        config = {
            "name": "files",
            "resource": {"cpulimit": 0.1, "memlimitmb": 32, "disklimitmb": 10},
            "command": {"shell": True, "value": shell},
            **more,
        }
        spec = {
            "name": "files", "owningteam": "tests", "instancecount": instances,
            "defaultconfig": config,
        }  # fmt: skip
        file = self.folder / "job.yaml"
        file.write_text(yaml.safe_dump(spec))
        made = typed("job", "create", "/HelloWorldPool", str(file))
        assert made.code == 0, made
        return made.out.split()[1]

    def ended(self, job: str) -> str:
        """The same, once it is over."""
        waited = typed("job", "wait", job)
        assert "SUCCEEDED" in waited.out, waited
        return job


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    mesos_home.needed_home()
    folder = tmp_path_factory.mktemp("files")
    mesos = Mesos(folder / "mesos", agents=2, resources=ROOMY)
    settings = yaml.safe_load((ROOT / "examples/mesos.yaml").read_text())
    settings["listen"] = dict.fromkeys(settings["listen"], "127.0.0.1:0")
    settings["backend"]["mesos"]["master"] = mesos.address
    file = folder / "mesos.yaml"
    file.write_text(yaml.safe_dump(settings))
    patch = pytest.MonkeyPatch()
    try:
        mesos.launch()
        with foreground(["daemon", "--config", str(file)]) as address:
            patch.setenv("PELOTON_API", address)
            until(lambda: "mesos.h2" in typed("host", "list").out)
            pool = str(ROOT / "examples/hello_world_pool.yaml")
            assert typed("respool", "create", "/HelloWorldPool", pool).code == 0
            yield Served(address, mesos, folder)
    finally:
        patch.undo()
        mesos.stop()


def fetched(found: Any, path: str, *, how: str = "download") -> tuple[int, bytes]:
    query = urllib.parse.urlencode({"path": path})
    url = f"http://{found.hostname}:{found.port}/files/{how}?{query}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_words_print_what_a_task_printed(served: Served) -> None:
    job = served.ended(served.job("echo to out; echo to err >&2"))
    printed = typed("task", "logs", job, "0")
    assert printed.out == "to out\n", printed
    # The executor of Mesos says something there as well.
    assert "to err\n" in typed("task", "logs", job, "0", "-f", "stderr").out
    assert typed("pod", "logs", f"{job}-0").out == "to out\n"
    assert typed("task", "logs", job, "0", "--follow").out == "to out\n"
    missing = typed("task", "logs", job, "0", "-f", "none")
    assert missing.code != 0 and "there is stderr, stdout" in missing.err


def test_a_task_is_followed_to_its_end(served: Served) -> None:
    gate, octal = served.folder / "gate", "".join(f"\\{byte:03o}" for byte in range(256))
    bytes_ = f"i=0; while [ $i -lt 1500 ]; do printf '{octal}'; i=$((i+1)); done"
    job = served.job(f"printf first; {until_there(gate)}; {bytes_}")
    with Client(served.address) as peloton:
        pieces = peloton.tasks.follow(job, 0, pause_s=0.05)
        assert next(pieces) == b"first"
        gate.touch()
        assert b"".join(pieces) == BYTES


def test_what_is_browsed_and_what_is_refused(served: Served) -> None:
    secret = served.folder / "secret"
    secret.write_text("secret")
    job = served.ended(
        served.job(
            f"mkdir -p deep/er; echo inside > deep/er/file; ln -s {secret} link; ln -s / up; "
            "mkfifo pipe; ln -s deep/er/file own"
        )
    )
    with Client(served.address) as peloton:
        found = peloton.tasks.browse(job, 0)
        assert peloton.pods.browse(f"{job}-0").mesos_master_port == found.mesosMasterPort
    master = served.mesos.leader()
    assert (found.mesosMasterHostname, found.mesosMasterPort) == ("127.0.0.1", str(master.port))
    names = [path.rpartition("/")[2] for path in found.paths]
    assert {"stdout", "stderr", "own"} <= {*names} and not {"pipe", "deep", "up"} & {*names}
    box = found.paths[0].rpartition("/")[0]
    assert fetched(found, f"{box}/deep/er/file") == (200, b"inside\n")
    assert fetched(found, f"{box}/own") == (200, b"inside\n")
    status, listing = fetched(found, f"{box}/deep", how="browse")
    (row,) = json.loads(listing)
    assert status == 200 and row["path"].endswith("/deep/er") and row["mode"][0] == "d"
    first = box.rpartition("/")[2]
    for wrong in (
        *("link", "up/etc/passwd", "pipe", "deep", "none", "deep/none", "../stdout", ".", ""),
        *("deep/../deep/er/file", "./stdout", "deep//../../stdout"),
    ):
        status, said = fetched(found, f"{box}/{wrong}")
        assert status == 404 and b"secret" not in said, wrong
    run, _, host = first.partition("@")
    for other in (f"{run[:-1]}9@{host}", run, f"{run}@mesos.none", f"../{first}"):
        status, _ = fetched(found, f"{box[: -len(first)]}{other}/stdout")
        assert status == 403, other


def test_an_agent_fetches_files_before_a_task_begins(served: Served) -> None:
    program, packed = served.folder / "program", served.folder / "packed.tgz"
    program.write_text("#!/bin/sh\necho fetched $1\n")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(program, "inner")
    uris = [
        {"value": str(program), "executable": True, "output_file": "own/name"},
        {"value": str(packed)},
        {"value": str(packed), "extract": False, "cache": True, "output_file": "as.tgz"},
    ]
    shell = "own/name one; sh inner two; ls as.tgz"
    job = served.ended(served.job("", command={"shell": True, "value": shell, "uris": uris}))
    assert typed("task", "logs", job, "0").out == "fetched one\nfetched two\nas.tgz\n"
    missing = {"value": "true", "uris": [{"value": str(served.folder / "none")}]}
    job = served.job("", command=missing, restartpolicy={"maxfailures": 0})
    assert "FAILED" in typed("job", "wait", job).out


def test_files_outlive_their_agent_and_not_what_it_removes(served: Served) -> None:
    job = served.ended(served.job("echo here"))
    with Client(served.address) as peloton:
        host = peloton.tasks.get(job, 0).result.runtime.host
        found = peloton.tasks.browse(job, 0)
    agent = next(one for one in served.mesos.agents if f"mesos.{one.hostname}" == host)
    agent.kill()
    away = typed("task", "logs", job, "0")
    assert away.code != 0 and f"the agent of host {host}" in away.err, away
    status, said = fetched(found, found.paths[0])
    assert status == 502 and f"the agent of host {host}".encode() in said
    with Client(served.address, timeout_s=5) as peloton, pytest.raises(ServiceUnavailable) as why:
        peloton.pods.browse(f"{job}-0")
    assert f"the agent of host {host}" in str(why.value)
    served.mesos.restart(agent)
    until(lambda: typed("task", "logs", job, "0").out == "here\n")
    agent.kill()
    served.mesos.restart(agent, recover=False)
    until(lambda: "has no files of run" in typed("task", "logs", job, "0").err)
    assert f"{job}-0-1" in typed("task", "logs", job, "0").err
    assert fetched(found, found.paths[0])[0] == 410
