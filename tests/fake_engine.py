"""A stand-in for podman: a program that speaks its command line and runs what it is told here.

Turns `create`, `start`, `attach`, `kill`, `ps`, `inspect`, `rm` and `pull` into processes of this
machine without any isolation, and files below the folder of its first argument. A container
outlives the client that started it, as its users have to cope with that.

Images are the files in `images`; `pull` knows those in `registry`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

OPTION_WORDS = ("--entrypoint", "--env-file", "--name", "--volume", "--workdir")


def install(folder: Path, name: str = "podman", *images: str) -> Path:
    """The program, as an executable of this name in `folder/bin`."""
    state = folder / "engine"
    for one in ("images", "registry", "containers"):
        (state / one).mkdir(parents=True, exist_ok=True)
    for image in images:
        (state / "images" / image.replace("/", "%")).touch()
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {__file__} {state} "$@"\n')
    path.chmod(0o755)
    return path


class Fake:
    """One call of it."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def call(self, words: list[str]) -> int:
        if words[0] in ("container", "image") and words[1] == "inspect":
            name, options = f"{words[0]}_inspect", words[2:]
        else:
            name, options = words[0], words[1:]
        with (self.state / "calls").open("a") as file:
            file.write(json.dumps(words) + "\n")
        return int(getattr(self, f"do_{name}")(options))

    def do_image_inspect(self, options: list[str]) -> int:
        return 0 if self._image("images", options[-1]).exists() else 125

    def do_pull(self, options: list[str]) -> int:
        if not self._image("registry", options[-1]).exists():
            return self._fails(f"initializing source docker://{options[-1]}: manifest unknown")
        self._image("images", options[-1]).touch()
        return 0

    def do_create(self, options: list[str]) -> int:
        found: dict[str, Any] = {"labels": []}
        while options and options[0].startswith("--"):
            name, _, value = options.pop(0).partition("=")
            if name == "--label":
                found["labels"].append(value)
            elif name in OPTION_WORDS:
                found[name[2:]] = value
        image, *arguments = options
        if not self._image("images", image).exists():
            return self._fails(f"{image}: image not known")
        found["command"] = [*self._entry(found["entrypoint"]), *arguments]
        variables = Path(found["env-file"]).read_text().splitlines()
        found["environment"] = dict(line.split("=", 1) for line in variables)
        try:
            self._folder(found["name"]).mkdir()
        except FileExistsError:
            return self._fails(f"the container name {found['name']} is already in use")
        self._write(found["name"], "config", json.dumps(found))
        self._write(found["name"], "status", "created 0")
        return 0

    def do_start(self, options: list[str]) -> int:
        name = options[-1]
        config = json.loads((self._folder(name) / "config").read_text())
        program = config["command"][0]
        if shutil.which(program, path="/bin:/usr/bin") is None:
            return self._fails(f"unable to start container: {program}: not found")
        if os.fork() == 0:
            os.setsid()  # it must not end with the client's group
            if os.fork() == 0:
                # As an engine's: nothing of the client's environment.
                words = [sys.executable, "-I", __file__, str(self.state), "shim", name]
                os.execve(sys.executable, words, {"PATH": "/bin:/usr/bin"})
            os._exit(0)
        os.wait()
        while not (self._folder(name) / "pid").exists():
            select.select([], [], [], 0.01)
        return self._wait(name)

    def do_attach(self, options: list[str]) -> int:
        status = self._status(options[-1])
        return self._wait(options[-1]) if status.startswith("running") else self._fails("state")

    def do_kill(self, options: list[str]) -> int:
        number = signal.Signals[f"SIG{options[0].partition('=')[2]}"]
        if not self._status(options[-1]).startswith("running"):
            return self._fails("can only kill running containers")
        os.killpg(int((self._folder(options[-1]) / "pid").read_text()), number)
        return 0

    def do_container_inspect(self, options: list[str]) -> int:
        status = self._status(options[-1])
        if not status:
            return self._fails(f"no such container {options[-1]}")
        state, code = status.split()
        oom = (self._folder(options[-1]) / "oom").exists()
        print(state, code, str(oom).lower(), "")
        return 0

    def do_ps(self, options: list[str]) -> int:
        if "--quiet" in options:
            return 0
        wanted = [one.partition("label=")[2] for one in options if one.startswith("--filter=")]
        for folder in sorted((self.state / "containers").iterdir()):
            try:
                labels = json.loads((folder / "config").read_text())["labels"]
            except FileNotFoundError:
                continue  # another client is making or removing it
            if {*wanted} <= {*labels}:
                print(folder.name)
        return 0

    def do_rm(self, options: list[str]) -> int:
        name = options[-1]
        if self._status(name).startswith("running"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int((self._folder(name) / "pid").read_text()), signal.SIGKILL)
            self._wait(name)
        shutil.rmtree(self._folder(name), ignore_errors=True)
        return 0

    def do_shim(self, options: list[str]) -> int:
        """It outlives the client, and knows the exit code."""
        name = options[-1]
        config = json.loads((self._folder(name) / "config").read_text())
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.chdir(config["volume"].partition(":")[0])
            environment = {"PATH": "/bin:/usr/bin", **config["environment"]}
            os.execvpe(config["command"][0], config["command"], environment)
        self._write(name, "status", "running 0")
        self._write(name, "pid", str(pid))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._write(name, "status", f"exited {code if code >= 0 else 128 - code}")
        return 0

    def _wait(self, name: str) -> int:
        while (status := self._status(name)).startswith("running"):
            select.select([], [], [], 0.01)
        return int(status.split()[1]) if status else 1

    def _entry(self, text: str) -> list[str]:
        return list(json.loads(text)) if text.startswith("[") else [text]

    def _image(self, where: str, image: str) -> Path:
        return self.state / where / image.replace("/", "%")

    def _folder(self, name: str) -> Path:
        return self.state / "containers" / name

    def _status(self, name: str) -> str:
        try:
            return (self._folder(name) / "status").read_text()
        except OSError:
            return ""

    def _write(self, name: str, what: str, text: str) -> None:
        path = self._folder(name) / what
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)

    def _fails(self, why: str) -> int:
        print(f"Error: {why}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(Fake(Path(sys.argv[1])).call(sys.argv[2:]))
