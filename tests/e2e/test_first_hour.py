"""The first hour of a person with commands: run, map, names, the default pool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.sdk.errors import BadSpec, Conflict
from tests.e2e import cluster as c

PELOTON = [sys.executable, "-m", "peloton"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    with c.running(tmp_path_factory.mktemp("hour")) as running:
        yield running


def test_run_is_as_if_typed_here(cluster: c.Cluster, tmp_path: Path) -> None:
    done = cluster.cli("run", "echo out; echo err >&2; exit 3", check=False)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.stderr.startswith("err\n") and "exit code 3" in done.stderr
    words = ["--api", cluster.address, "run", "--env", "A=b c", "--", "sh", "-c", 'echo "$A $PWD"']
    here = subprocess.run(
        [*PELOTON, *words],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert here.stdout == f"b c {tmp_path}\n"
    assert str(cluster.folder) in cluster.cli("run", "--workdir", ".", "--", "pwd").stdout
    assert cluster.cli("run", "--", "no-such-program", check=False).returncode == 127
    assert cluster.cli("run", "kill -9 $$", check=False).returncode == 137


def test_a_command_finds_what_its_caller_does(
    cluster: c.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a virtual environment that was activated, for one command and for many."""
    program = tmp_path / "bin" / "only-here"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$1 $OWN $OTHER"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OTHER", "other")
    assert cluster.cli("run", "--env", "OWN=own", "--", "only-here", "a").stdout == "a own \n"
    assert cluster.cli("run", "--env-all", "--", "only-here", "a").stdout == "a  other\n"
    assert cluster.cli("run", "--clean-env", "only-here a", check=False).returncode == 127
    small = ("--cpus", "0.1", "--mem", "10m", "--keep-order")
    done = cluster.cli("map", *small, "--env", "OWN=own", "only-here {}", ":::", "1", "2")
    assert done.stdout == "1 own \n2 own \n"
    both = cluster.cli("run", "--env-all", "--clean-env", "true", check=False)
    assert both.returncode == 125 and "give only one of them" in both.stderr


def test_the_longest_text_that_a_program_may_be_given(cluster: c.Cluster) -> None:
    done = cluster.cli("run", "--workdir", ".", "echo " + "x" * (131_071 - 5))
    assert len(done.stdout) == 131_071 - 4
    refused = cluster.cli("run", "--workdir", ".", "echo " + "x" * 131_071, check=False)
    assert refused.returncode == 125 and "the kernel's limit" in refused.stderr


def test_a_script_travels_as_it_is(cluster: c.Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train"
    long = "x" * 3_900_000
    script.write_text(f"#!{sys.executable}\nimport sys\nprint(len('{long}'), sys.argv[1:])\n")
    words = ("run", "--script", str(script), "--", "a b", "--seed")
    assert cluster.cli(*words).stdout == "3900000 ['a b', '--seed']\n"
    script.write_text("echo $0 is of sh; exit 7")
    job = cluster.cli("run", "--detach", "--name", "scripted", "--script", str(script))
    script.write_text("echo changed")
    assert cluster.cli("wait", "scripted", check=False).returncode == 7
    assert "is of sh" in cluster.cli("task", "logs", job.stdout.strip(), "0").stdout
    script.write_text("x" * 4_200_000)
    refused = cluster.cli("run", "--script", str(script), check=False)
    assert refused.returncode == 125 and "at most 4194304 bytes" in refused.stderr
    nowhere = cluster.cli("run", "--workdir", str(tmp_path / "none"), "true", check=False)
    assert nowhere.returncode == 125 and str(tmp_path / "none") in nowhere.stderr
    nothing = cluster.cli("run", check=False)
    assert nothing.returncode == 125 and "no command" in nothing.stderr


def test_the_files_of_a_job_come_once(cluster: c.Cluster) -> None:
    spec = c.job(1, 'cat "$PELOTON_KEEPER/files/$PELOTON_JOB_ID/a"')
    with cluster.client() as client:
        key: dict[str, Any] = {"config": spec, "request_key": "the same"}
        job = client.jobs.create_with({"a": b"first"}, "/default", **key).jobId.value
        assert client.jobs.create_with({"a": b"first"}, "/default", **key).jobId.value == job
        with pytest.raises(Conflict, match="used with another body"):
            client.jobs.create_with({"a": b"second"}, "/default", **key)
        with pytest.raises(BadSpec, match="is no name of letters"):
            client.jobs.create_with({"../a": b"x"}, "/default", config=spec)
        assert c.ended(client, job)[0] == "SUCCEEDED"
    assert cluster.cli("task", "logs", job, "0").stdout == "first"
    assert [one.name for one in (cluster.folder / "data/keeper/files" / job).iterdir()] == ["a"]


def test_long_lines_of_map_travel_as_files_and_run_again(
    cluster: c.Cluster, tmp_path: Path
) -> None:
    file, mended = tmp_path / "commands", tmp_path / "mended"
    long = f"test -e {mended} || exit 4; : {'x' * 200_000}; echo long; pwd"
    file.write_text(f"echo short\n{long}\n")
    small = ("--cpus", "0.1", "--mem", "20m", "--workdir", str(tmp_path))
    done = cluster.cli("map", *small, "--name", "long", str(file), check=False)
    assert (done.returncode, done.stdout) == (1, "short\n"), done.stderr
    mended.touch()
    again = cluster.cli("map", "--retry-failed", "long")
    assert again.stdout == f"long\n{tmp_path}\n"
    file.write_text("".join(f"echo {number}; : {'y' * 9000}\n" for number in range(500)))
    many = cluster.cli("map", *small, "--keep-order", str(file))
    assert many.stdout.split() == [*map(str, range(500))]


def test_what_runs_again_takes_the_options_that_are_given(cluster: c.Cluster) -> None:
    with cluster.client() as client:
        c.pool(client, "/again")
    words = ("--pool", "/again", "--name", "again", "--mem", "20m", "--retries", "1")
    failed = cluster.cli("map", *words, "--env", "A=1", "exit {}", ":::", "0", "4", check=False)
    assert failed.returncode == 1, failed.stderr
    shown = ("map", "--retry-failed", "again", "--dry-run")
    same = yaml.safe_load(cluster.cli(*shown).stdout)
    config = same["defaultConfig"]
    assert (same["pool"], config["restartPolicy"], config["resource"]["memLimitMb"]) == (
        "/again", {"maxFailures": 2}, 20.0
    )  # fmt: skip
    cluster.cli("respool", "delete", "/again")
    gone = cluster.cli(*shown, check=False)
    assert gone.returncode == 66 and "name another one with --pool" in gone.stderr
    kept = cluster.cli(*shown, "--workdir", ".", "--clean-env", check=False)
    assert kept.returncode == 64 and "--clean-env: instances that run again" in kept.stderr
    more = ("--pool", "/default", "--mem", "30m", "--retries", "2", "--env", "A=2", "--env", "B=3")
    other = yaml.safe_load(cluster.cli(*shown, *more, "--deadline", "2h").stdout)
    config = other["defaultConfig"]
    assert (other["pool"], config["restartPolicy"], config["resource"]["memLimitMb"]) == (
        "/default", {"maxFailures": 3}, 30.0
    )  # fmt: skip
    (own,) = other["instanceConfig"].values()
    assert own["command"]["environment"]["variables"] == [
        {"name": "A", "value": "2"}, {"name": "B", "value": "3"}
    ]  # fmt: skip
    assert {"key": "peloton.deadline", "value": "2h"} in other["labels"]


def test_who_stops_reading_is_told_that_the_job_goes_on(cluster: c.Cluster) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [*PELOTON, "--api", cluster.address, "run", "echo one; sleep 0.2; echo two"],
        stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    os.close(writing)
    assert ran.returncode == 0
    assert "nobody reads stdout any more; the job goes on" in ran.stderr


def test_run_tries_again_and_repeats(cluster: c.Cluster) -> None:
    tried = cluster.cli("run", "--retries", "1", "echo try; sleep 0.5; exit 1", check=False)
    assert (tried.returncode, tried.stdout) == (1, "try\ntry\n")
    several = cluster.cli("run", "-n", "3", "--max-parallel", "9", "echo $PELOTON_INSTANCE_ID")
    assert sorted(several.stdout.splitlines()) == ["0\t0", "1\t1", "2\t2"]


def test_an_interrupt_without_a_terminal_stops_the_job(cluster: c.Cluster) -> None:
    # A shell starts what it puts into the background with SIGINT ignored, these tests too.
    interruptible = ["env", "--default-signal=INT", *PELOTON, "--api", cluster.address]
    with subprocess.Popen(
        [*interruptible, "run", "--name", "stopped", "echo go; sleep 600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert run.stdout.readline() == "go\n"
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors

    def state() -> str:
        found = json.loads(cluster.cli("-j", "job", "status", "stopped").stdout)
        return str(found["jobInfo"]["runtime"]["state"])

    c.wait_for(lambda: state() == "KILLED", "what was ordered to be done")


def test_a_detached_job_goes_on(cluster: c.Cluster) -> None:
    job = cluster.cli("run", "--detach", "--name", "apart", "--", "true").stdout.strip()
    assert cluster.cli("wait", job[:13], "apart").returncode == 0


def test_the_reason_of_an_end_is_said_once(cluster: c.Cluster) -> None:
    late = cluster.cli("run", "--cpus", "0.1", "--deadline", "1s", "--", "sleep", "60", check=False)
    assert late.returncode == 125
    assert late.stderr.count("it had not ended by its deadline") == 1


def test_map_shows_what_failed_and_runs_it_again(cluster: c.Cluster, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    template = (
        f"test {{}} != 7 -o -e {mended} || {{ echo seven is bad >&2; exit 4; }}; echo ok {{}}"
    )
    small = ("--cpus", "0.1", "--mem", "10m")
    options = (*small, "--name", "sevens", "--keep-order", "--max-parallel", "8")
    done = cluster.cli("map", *options, template, ":::", *map(str, range(20)), check=False)
    assert done.returncode == 1
    assert done.stdout.split() == [w for n in range(20) if n != 7 for w in ("ok", str(n))]
    assert "[instance 7] FAILED, exit code 4" in done.stderr and "    seven is bad" in done.stderr
    mended.touch()
    again = cluster.cli("map", "--retry-failed", "sevens", "--tag")
    assert again.stdout == "8\tok 7\n", "the number of its line, as `{#}` counts"
    assert again.stderr.splitlines()[0].endswith(": 1 command, as sevens-retry-1")
    none = cluster.cli("map", "--retry-failed", again.stderr.split()[1].rstrip(":"), check=False)
    assert none.returncode == 73 and "no instance" in none.stderr


def test_map_takes_a_file(cluster: c.Cluster, tmp_path: Path) -> None:
    file = tmp_path / "commands"
    file.write_text("".join(f"echo line {number}\n" for number in range(50)))
    done = cluster.cli("map", "--cpus", "0.1", "--mem", "10m", str(file))
    assert len({*done.stdout.splitlines()}) == 50
    assert "50 SUCCEEDED" in done.stderr
    command = [*PELOTON, "--api", cluster.address, "map", "--cpus", "0.1", "--mem", "10m"]
    piped = subprocess.run(
        [*command, "echo v{}"], input="1\n2\n", capture_output=True, text=True, timeout=60
    )
    assert {*piped.stdout.split()} == {"v1", "v2"}, piped.stderr
    assert cluster.cli("map", str(tmp_path / "none"), check=False).returncode == 64


def test_the_default_pool_is_made_once_and_follows_the_cluster(tmp_path: Path) -> None:
    def limits() -> dict[str, float]:
        with cluster.client() as client:
            return {
                one.path.value: next(k.limit for k in one.config.resources if k.kind == "cpu")
                for one in client.pools.list().resourcePools
            }

    with c.running(tmp_path, "--backend", "simulated", "--hosts", "2") as cluster:
        assert limits() == {"/": 8.0, "/default": 8.0}
        cluster.stop()
        cluster.options = ("--backend", "simulated", "--hosts", "3")
        cluster.start()
        assert limits() == {"/": 12.0, "/default": 12.0}
        with cluster.client() as client:
            client.pools.delete("/default")
        cluster.stop()
        cluster.start()
        assert limits() == {"/": 12.0}


def test_a_cluster_of_ones_own_for_one_command(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*PELOTON, "run", "--local", "--", "echo", "local"],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "local\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_local_cluster_ends_with_its_command(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*PELOTON, "run", "--local", "--", "sh", "-c", "echo go; sleep 600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert run.stdout.readline() == "go\n"
        began = time.monotonic()
        run.terminate()
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 130, errors
    assert list(tmp_path.iterdir()) == [], f"after {time.monotonic() - began:.1f} s"


def test_without_a_cluster_the_ways_to_one_are_named() -> None:
    done = subprocess.run(
        [*PELOTON, "--api", "127.0.0.1:1", "run", "--", "true"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 125
    assert "peloton minicluster" in done.stderr and "--local" in done.stderr


def test_why_names_who_failed_and_what_it_said(cluster: c.Cluster) -> None:
    text = "test $PELOTON_INSTANCE_ID = 1 || { echo no data >&2; exit 4; }"
    small = ("--cpus", "0.1", "--mem", "16m", "--name", "half")
    cluster.cli("run", *small, "-n", "3", text, check=False)
    told = cluster.cli("why", "half").stderr.splitlines()
    assert told[-3:-1] == ["exit code 4: instances 0, 2", "  the stderr of 0 ends with: no data"]
    assert "  task logs" not in told[-1] and "task logs" in told[-1]


def test_writes_can_be_tried_first_and_pools_be_changed(cluster: c.Cluster, tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    pool = "name: small\nresources: [{{kind: cpu, limit: {}}}, {{kind: memory, limit: 100}}]\n"
    file.write_text(pool.format(1))
    words = ("respool", "create", "/small", str(file))
    assert "would create" in cluster.cli(*words, "--dry-run").stdout
    assert "/small" not in cluster.cli("respool", "dump", "--output", "name").stdout
    cluster.cli(*words)
    big = ("run", "--pool", "/small", "--cpus", "2", "--mem", "10m", "--name", "big", "--detach")
    warned = cluster.cli(*big, "--", "true").stderr
    assert "warning: config.defaultConfig.resource.cpuLimit: requested 2" in warned
    file.write_text(pool.format(2))
    update = ("respool", "update", "/small", str(file))
    tried = cluster.cli(*update, "--dry-run").stdout.splitlines()
    assert tried[1:] == ["would change cpu limit: 1 -> 2"]
    for dry in (
        ("job", "stop", "big"), ("task", "restart", "big"),
        ("host", "maintenance", "start", "peloton-mesos-agent0"),
    ):  # fmt: skip
        assert "would" in cluster.cli(*dry, "--dry-run").stdout, dry
    page = cluster.cli("top").stdout
    assert "  big|" in page and "/small|" in page and "Hosts: " in page
    job = json.loads(cluster.cli("-j", "job", "active-list").stdout)["ids"]
    assert len(job) == 1
    cluster.cli(*update)
    assert cluster.cli("wait", "big").returncode == 0, "it has room now"
    busy = cluster.cli("respool", "delete", "/small", "--dry-run")
    assert "would delete" in busy.stdout
    assert cluster.cli("respool", "delete", "/small").returncode == 0


SERVICE = """\
name: fragile
instance_count: 2
default_spec:
  containers:
  - resource: {{cpu_limit: 0.01, mem_limit_mb: 10, disk_limit_mb: 1}}
    entrypoint: {{value: '{command}'}}
"""


def test_after_an_update_was_rolled_back_its_last_lines_are_told(
    cluster: c.Cluster, tmp_path: Path
) -> None:
    spec = tmp_path / "service.yaml"
    spec.write_text(SERVICE.format(command="sleep 600"))
    cluster.cli("job", "stateless", "create", "/default", str(spec), "0", "--wait")
    spec.write_text(SERVICE.format(command="echo no port for me >&2; exit 9"))
    limits = ("--maxInstanceRetries", "1", "--maxTolerableInstanceFailures", "1")
    words = ("job", "stateless", "replace", "fragile", str(spec), "1", "/default")
    back = cluster.cli(*words, *limits, "--rollbackOnFailure", "--wait", check=False)
    assert (back.returncode, "ROLLED_BACK" in back.stderr) == (1, True), back.stderr
    for told in (cluster.cli("why", "fragile"), cluster.cli("job", "get", "fragile")):
        text = told.stdout + told.stderr
        assert "its update to version 2 was rolled back: instance" in text
        assert "9" in text and "    no port for me\n" in told.stderr
    cluster.cli("job", "stop", "fragile")


def test_a_command_that_is_never_run_has_no_exit_code(cluster: c.Cluster) -> None:
    spec = c.job(1, "true")
    spec["defaultConfig"]["command"]["user"] = "no-such-account"
    with cluster.client() as client:
        job = client.jobs.create("/default", spec).jobId.value
    waited = cluster.cli("wait", job, check=False)
    assert waited.returncode == 125
    assert "its lowest failed instance: " in waited.stderr and "no-such-account" in waited.stderr
    for words in (("why", job), ("task", "list", job)):
        told = cluster.cli(*words).stdout
        assert "no-such-account" in told and "exit code" not in told
