"""What a run becomes on an engine's command line: a table, and what must never get there."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.backends.keeper.engine import (
    ContainerRefused,
    ContainerSettings,
    RunUser,
    container_of,
    create_arguments,
    environment_file,
    image_problem,
)
from peloton.backends.keeper.kinds import KeeperRun

PLACE = ContainerSettings("k-1", "/k/runs/r-0-1", {"nofile": (1024, 4096), "nproc": (-1, -1)})
ALWAYS = [
    "create", "--name=peloton-k-1-r-0-1", "--label=peloton.keeper=k-1", "--label=peloton.run=r-0-1",
    "--network=host", "--log-driver=none", "--env-file=/dev/fd/5",
    "--volume=/k/runs/r-0-1:/mnt/mesos/sandbox", "--workdir=/mnt/mesos/sandbox",
    "--ulimit=nofile=1024:4096", "--ulimit=nproc=-1:-1",
]  # fmt: skip
SHELL = ['--entrypoint=["/bin/sh"]', "debian", "-c", "echo $X"]
LIMITS = {"mode": "try", "cpu": 0.5, "cpu_quota": False, "pids": 100, "disk_mb": 0.0}


def made(engine: str = "podman", *, user: RunUser | None = None, **fields: Any) -> list[str]:
    """What comes after what is always there."""
    command = {"value": "echo $X", "shell": True, "arguments": [], **fields.pop("command", {})}
    run = KeeperRun("r-0-1", "host-1", command=command, memory_mb=fields.pop("memory_mb", 0.0))
    run.container = {"engine": f"/usr/bin/{engine}", "image": "debian"}
    run.container |= {"gpus": fields.pop("gpus")} if "gpus" in fields else {}
    run.limits = fields.pop("limits", {})
    assert not fields
    found = create_arguments(run, PLACE, user=user)
    assert found[: len(ALWAYS)] == ALWAYS
    return found[len(ALWAYS) :]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["--pids-limit=-1", *SHELL]),
        ({"engine": "docker"}, ["--pids-limit=-1", "--entrypoint=/bin/sh", *SHELL[1:]]),
        (
            {"gpus": [0, 2]},
            [
                "--pids-limit=-1", "--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=2",
                *SHELL,
            ],
        ),
        (
            {"gpus": [0, 2], "engine": "docker"},
            ["--pids-limit=-1", '--gpus="device=0,2"', "--entrypoint=/bin/sh", *SHELL[1:]],
        ),
        (
            {"memory_mb": 64.0},
            ["--memory=67108864b", "--memory-swap=67108864b", "--pids-limit=-1", *SHELL],
        ),
        (
            {"memory_mb": 1.0, "limits": LIMITS},
            [
                "--memory=33554432b", "--memory-swap=33554432b", "--cpu-shares=512",
                "--pids-limit=100", *SHELL,
            ],
        ),
        (
            {"limits": {**LIMITS, "cpu_quota": True, "pids": 0}},
            ["--cpu-shares=512", "--cpus=0.50", "--pids-limit=-1", *SHELL],
        ),
        ({"limits": {**LIMITS, "mode": "off"}}, ["--pids-limit=-1", *SHELL]),
        (
            {"user": RunUser(1001, 1002, (1002, 27))},
            [
                "--user=1001:1002", "--group-add=27", "--cap-drop=ALL",
                "--security-opt=no-new-privileges", "--pids-limit=-1", *SHELL,
            ],
        ),
        ({"user": RunUser(0, 0)}, ["--user=0:0", "--pids-limit=-1", *SHELL]),
        (
            {"command": {"value": "/x", "shell": False, "arguments": ["name", "-v", "--rm"]}},
            ["--pids-limit=-1", '--entrypoint=["/x"]', "debian", "-v", "--rm"],
        ),
        (
            {"command": {"value": "--privileged", "shell": False}},
            ["--pids-limit=-1", '--entrypoint=["--privileged"]', "debian"],
        ),
    ],
)  # fmt: skip
def test_a_run_in_the_words_of_an_engine(fields: dict[str, Any], expected: list[str]) -> None:
    assert made(**fields) == expected


def test_what_cannot_be_a_container_says_why() -> None:
    with pytest.raises(ContainerRefused, match="names no command"):
        made(command={"value": "", "shell": False})
    run = KeeperRun("r", "h", command={"value": "x", "shell": True, "arguments": []}, memory_mb=0.0)
    run.container = {"engine": "/usr/bin/podman", "image": "debian"}
    with pytest.raises(ContainerRefused, match="has a colon"):
        create_arguments(run, ContainerSettings("k", "/a:b/r", {}))


@pytest.mark.parametrize(
    "image",
    [
        "debian", "debian:12", "localhost/bb:1", "localhost:5000/a/b-c_d:V1.2", "docker:24-dind",
        "registry.example.com/team/app@sha256:" + "a" * 64, "ghcr.io/x/y.z__q:latest",
    ],
)  # fmt: skip
def test_names_of_images(image: str) -> None:
    assert image_problem(image) == ""


@pytest.mark.parametrize(
    "image",
    [
        "", "-x", "--privileged", " debian", "a b", "a\nb", "/etc", "dir:/etc", "dir:etc", "oci:1",
        "docker-archive:x", "docker://debian", "a:", "a@b", "A", "a" * 513, "a;b", "$(x)",
    ],
)  # fmt: skip
def test_what_is_no_name_of_an_image(image: str) -> None:
    assert image_problem(image)
    with pytest.raises(ValueError, match="image|place of this machine"):
        container_of({"engine": "/usr/bin/podman", "image": image})


@pytest.mark.parametrize("engine", ["podman", "/bin/sh", "", "/usr/bin/podman/../sh"])
def test_only_a_known_engine_by_its_path_is_executed(engine: str) -> None:
    with pytest.raises(ValueError, match="not a container engine"):
        container_of({"engine": engine, "image": "debian"})


def test_variables_go_through_a_file_not_the_command_line() -> None:
    found = environment_file({"A": "1 2", "B": '"q"#', "LD_PRELOAD": "x"})
    assert found == b'MESOS_SANDBOX=/mnt/mesos/sandbox\nA=1 2\nB="q"#\nLD_PRELOAD=x\n'


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("A", "1\nB=2", "line break"), ("A*", "1", "such a name"), ("#A", "", "such a name")],
)
def test_variables_that_the_file_cannot_hold_are_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(ContainerRefused, match=why):
        environment_file({name: value})
