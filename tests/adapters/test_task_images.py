"""Which engine runs the images of tasks, and what a machine without one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.assembly.task_images import (
    FoundEngine,
    check_task_images,
    engine_text,
    find_engine,
    problem,
)
from peloton.failures import CannotStart
from peloton.settings.daemon import DaemonSettings, parse
from tests.cli.terminal import typed

HERE, NOWHERE = FoundEngine("/usr/bin/podman"), FoundEngine("", "no podman in PATH")


def settings(tmp_path: Path, images: str, roles: str = "") -> DaemonSettings:
    raw = {
        "cluster": "c",
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"process": {"folder": "k", "hosts": [{"name": "a"}], "images": images}},
    }
    return parse(raw, tmp_path)


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_an_engine_is_needed_only_to_run_images(tmp_path):
    for images in ("ignore", "refuse"):
        assert problem(settings(tmp_path, images), find=lambda: NOWHERE) == ""
        assert check_task_images(settings(tmp_path, images), find=lambda: HERE) == ""
    runs = settings(tmp_path, "run")
    assert problem(runs, find=lambda: HERE) == ""
    assert check_task_images(runs, find=lambda: HERE) == "/usr/bin/podman"
    said = "backend.process.images: run needs podman or docker: no podman in PATH"
    assert problem(runs, find=lambda: NOWHERE) == said


def test_the_first_engine_that_answers_is_taken(tmp_path):
    podman = program(tmp_path, "podman", "exit 0")
    docker = program(tmp_path, "docker", "echo 'Cannot connect to it.' >&2; exit 1")
    known = {"podman": str(podman), "docker": str(docker)}
    assert find_engine(known.get) == FoundEngine(str(podman))
    del known["podman"]
    found = find_engine(known.get)
    assert found.path == ""
    assert found.why == f"no podman in PATH; {docker} does not work (Cannot connect to it.)"
    program(tmp_path, "docker", "exit 0")
    assert find_engine(known.get).path == str(docker)
    assert engine_text(lambda: HERE) == "containers: /usr/bin/podman"
    assert engine_text(lambda: NOWHERE) == "no containers: no podman in PATH"


def test_a_daemon_that_must_run_images_does_not_start_without_an_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(CannotStart, match="no podman in PATH; no docker in PATH"):
        check_task_images(settings(tmp_path, "run"))
    base = ["minicluster", "--check", "--no-classic-ports", "--data-dir", str(tmp_path / "data")]
    file = tmp_path / "cluster.yaml"
    file.write_text("backend: {process: {images: run}}")
    base += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cluster", str(file)]
    printed = typed(*base)
    assert printed.code != 0
    assert "backend.process.images: run needs podman or docker: no podman in PATH" in printed.err
    program(tmp_path / "bin", "podman", "exit 0")
    printed = typed(*base)
    assert printed.code == 0, printed.err
    assert f"containers: {tmp_path}/bin/podman" in printed.out
