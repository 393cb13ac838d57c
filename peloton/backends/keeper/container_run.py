"""The watcher of one container, a child of the keeper: `python -I -S .../container_run.py`.

Turns a description (JSON, by a descriptor) into a container of podman or docker, and its end into a
file: it fetches the image, creates and starts the container, passes signals on, and removes it once
its end is written. So the keeper waits for no engine. Only an end that the engine has reported is
written: while the engine does not answer, the watcher asks again.

SIGTERM asks the container to end, SIGUSR1 kills it. Both are blocked from the beginning and taken
when there is time. A watcher that is killed harms nothing: another one resumes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

DESCRIPTION_FD = 4
UNFINISHED = ".new"  # what the file of an end has behind its name until it is complete
RUN, RESUME, SWEEP = "run", "resume", "sweep"
ENDED, STOPPED, GONE = "ended", "stopped", "gone"
NO_IMAGE, NO_CREATE, NOT_STARTED, NO_ENGINE = "image", "create", "start", "engine"
"""How it ended: with a status, stopped before, removed by others; without its image, not made, not
started, or by an engine that does not answer."""
# The last two mean nothing here, and must not end it: what it watches would be nobody's.
TAKEN = (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)
_TERM, _KILL = 1, 2
_SIGNALS = {_TERM: "TERM", _KILL: "KILL"}
_OVER = ("exited", "dead", "stopped")
_UNSTARTED = ("created", "configured", "initialized")
_SHOWN = "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.State.Error}}"
_CALL_S_MAX = 60.0
_LOOK_S, _RETRY_S, _RETRY_S_MAX = 5.0, 0.1, 5.0
_REMOVALS_MAX = 3
_TEXT_BYTES_MAX = 64 * 1024
_TEXT_CHARS_MAX = 500
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and a child would inherit that


class SeenContainer(NamedTuple):
    """A container as its engine shows it."""

    status: str
    code: int = 0
    oom: bool = False
    text: str = ""


class Engine:
    """Calls of one engine, and the signals that came meanwhile: `stop` is the strongest."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stop = 0

    def call(self, *arguments: str, kept_fd: int = -1, stoppable: bool = False) -> tuple[int, str]:
        """Return exit status and output; only calls that may take long can be stopped."""
        output = os.memfd_create("output")
        try:
            pid = self.spawn(arguments, output=output, errors=output, kept_fd=kept_fd)
            until = time.monotonic() + _CALL_S_MAX
            sent = 0
            while (status := self.ended(pid)) is None:
                if stoppable and self.stop > sent:
                    sent = self.stop
                    os.kill(pid, signal.SIGTERM if sent == _TERM else signal.SIGKILL)
                elif not stoppable and time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                self.pause(_LOOK_S)
            return status, _text_of(output)
        except OSError as trouble:
            return -1, f"cannot run {self.path}: {trouble.strerror}"
        finally:
            os.close(output)

    def spawn(self, arguments: Sequence[str], *, output: int, errors: int, kept_fd: int) -> int:
        """Start a client of the engine; return its pid. Raises OSError."""
        actions: list[Any] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, errors, 2),
        ]
        if kept_fd >= 0:
            actions.append((os.POSIX_SPAWN_DUP2, kept_fd, kept_fd))
        command = [self.path, *arguments]
        return os.posix_spawn(
            self.path, command, os.environ, file_actions=actions, setsigmask=(), setsigdef=_RESET
        )

    def ended(self, pid: int) -> int | None:
        """Return the status of a client once it has ended."""
        found, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None

    def pause(self, seconds: float) -> None:
        """Wait until a child ends, a signal comes, or the time is over."""
        until = time.monotonic() + seconds
        # Signals of one kind that come together are one.
        while (found := signal.sigtimedwait(TAKEN, max(0.0, until - time.monotonic()))) is not None:
            if found.si_signo == signal.SIGTERM:
                self.stop = max(self.stop, _TERM)
            elif found.si_signo == signal.SIGUSR1:
                self.stop = _KILL
            return


class ContainerWatcher:
    """The watcher of one container."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._name = str(told["name"])
        self._engine = Engine(str(told["engine"]))

    def run(self) -> None:
        self._finish(self._made() or self._started(["start", "--attach", self._name]))

    def resume(self) -> None:
        """Continue after another watcher, which may have died anywhere."""
        shown = self._look()
        if shown.status in _UNSTARTED:
            self._finish(self._started(["start", "--attach", self._name]))
        else:
            self._finish(self._followed(shown))

    def _made(self) -> dict[str, Any] | None:
        """Create the container; return why there is none to start, if so."""
        engine, image = self._engine, str(self._told["image"])
        if engine.call("image", "inspect", "--format={{.Id}}", image)[0] != 0:
            status, text = engine.call("pull", "--quiet", image, stoppable=True)
            if engine.stop:
                return {"is": STOPPED}
            if status != 0:
                return self._blamed(NO_IMAGE, _why(text, f"pull: status {status}"))
        kept = int(self._told["environment_fd"])
        status, text = engine.call(*self._told["create"], kept_fd=kept, stoppable=True)
        engine.pause(0.0)
        if engine.stop:
            return {"is": STOPPED}
        if status != 0:
            return self._blamed(NO_CREATE, _why(text, f"create: status {status}"))
        return None

    def _blamed(self, kind: str, text: str) -> dict[str, Any]:
        """Return an end that blames the container, or an engine that answers nothing else."""
        answers = self._engine.call("ps", "--quiet")[0] == 0
        return {"is": kind if answers else NO_ENGINE, "text": text}

    def _started(self, arguments: list[str]) -> dict[str, Any]:
        status = self._attached(arguments)
        shown = self._look()
        if shown.status in _UNSTARTED:
            if self._engine.stop:
                return {"is": STOPPED}
            text = _why(shown.text or self._said(), f"start: status {status}")
            return {"is": NOT_STARTED, "status": shown.code, "text": text}
        return self._followed(shown)

    def _followed(self, shown: SeenContainer) -> dict[str, Any]:
        """Follow the container until it has ended. A client may end before its container does."""
        pause_s = _RETRY_S
        while shown.status not in _OVER:
            if shown.status == GONE:
                return {"is": GONE}
            self._attached(["attach", "--no-stdin", "--sig-proxy=false", self._name])
            shown = self._look()
            if shown.status not in _OVER:
                self._engine.pause(pause_s)
                pause_s = min(2 * pause_s, _RETRY_S_MAX)
        return {"is": ENDED, "status": shown.code, "oom": shown.oom, "text": shown.text}

    def _attached(self, arguments: list[str]) -> int:
        """Run this client until it ends; its output is the container's.

        Signals are passed on repeatedly until the engine has taken them: it refuses them before the
        container runs.
        """
        engine, told, pause_s = self._engine, 0, _RETRY_S
        try:
            pid = engine.spawn(arguments, output=1, errors=2, kept_fd=-1)
        except OSError:
            return -1
        while (status := engine.ended(pid)) is None:
            wanted = engine.stop
            if wanted > told:
                if engine.call("kill", f"--signal={_SIGNALS[wanted]}", self._name)[0] == 0:
                    told, pause_s = wanted, _RETRY_S
                    continue
                pause_s = min(2 * pause_s, _RETRY_S_MAX)
            engine.pause(pause_s if wanted > told else _LOOK_S)
        return status

    def _look(self) -> SeenContainer:
        """Return the container as the engine shows it; wait for an engine that does not answer."""
        engine, pause_s = self._engine, _RETRY_S
        while True:
            shown = engine.call("container", "inspect", f"--format={_SHOWN}", self._name)
            words = shown[1].strip().split(" ", 3)
            if shown[0] == 0 and len(words) > 2 and words[1].lstrip("-").isdigit():
                rest = words[3].strip() if len(words) > 3 else ""
                return SeenContainer(words[0], int(words[1]), words[2] == "true", rest)
            label = f"--filter=label={self._told['label']}"
            listed = engine.call("ps", "--all", label, "--format={{.Names}}")
            if listed[0] == 0 and self._name not in listed[1].split():
                return SeenContainer(GONE)
            engine.pause(pause_s)
            pause_s = min(2 * pause_s, _RETRY_S_MAX)

    def _said(self) -> str:
        """Return the engine's output about a container that never ran."""
        try:
            folder = os.open(self._told["sandbox"], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                file = os.open("stderr", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
            finally:
                os.close(folder)
        except OSError:
            return ""
        try:
            return _text_of(file)
        finally:
            os.close(file)

    def _finish(self, end: dict[str, Any]) -> None:
        """Write the end, then remove the container: the engine forgets its status with it."""
        path = str(self._told["end"])
        try:
            with open(path + UNFINISHED, "w", encoding="utf-8") as file:
                json.dump(end, file)
            os.replace(path + UNFINISHED, path)
        except OSError as trouble:
            os.write(2, f"the end of the run is lost: {trouble.strerror}\n".encode())
        _remove(self._engine, self._name)


def _remove(engine: Engine, name: str) -> None:
    for _ in range(_REMOVALS_MAX):
        if engine.call("rm", "--force", "--volumes", name)[0] == 0:
            return
        engine.pause(_RETRY_S)


def _sweep(told: dict[str, Any]) -> None:
    """Remove the keeper's containers but for those of runs that go on."""
    kept = set(told["keep"])
    for path in told["engines"]:
        engine = Engine(str(path))
        status, text = engine.call(
            "ps", "--all", f"--filter=label={told['label']}", "--format={{.Names}}"
        )
        for name in sorted(text.split() if status == 0 else []):
            if name.startswith(str(told["prefix"])) and name not in kept:
                _remove(engine, name)


def _text_of(file: int) -> str:
    size = os.fstat(file).st_size
    return os.pread(file, _TEXT_BYTES_MAX, max(0, size - _TEXT_BYTES_MAX)).decode(errors="replace")


def _why(text: str, otherwise: str = "") -> str:
    """Return an engine's error in one line: its attempts and warnings come before."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("Error")]
    return (errors or lines or [otherwise])[-1][:_TEXT_CHARS_MAX]


def main() -> None:
    """Read the description of the container, and watch it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
    os.chdir("/")
    with open(DESCRIPTION_FD, encoding="utf-8") as file:
        told = json.load(file)
    if told["mode"] == SWEEP:
        _sweep(told)
    elif told["mode"] == RESUME:
        ContainerWatcher(told).resume()
    else:
        ContainerWatcher(told).run()


if __name__ == "__main__":
    main()
