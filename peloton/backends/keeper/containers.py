"""Runs that are containers: starting, signalling and reading their watchers.

Turns a run into a watcher (`container_run.py`), which speaks to the engine, and the file that one
leaves into the end. The keeper never waits for an engine. A container whose run is not known to
have ended must not be removed: one that lost its watcher gets another.
"""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Iterable

from . import container_run, engine, processes, volumes
from .accounts import Account
from .disk import DISK, Disk, make_folder, read_file, replace_file
from .engine import ContainerSettings, RunUser
from .identity import keeper_id
from .kinds import KeeperRun, Record
from .processes import SpawnFailed
from .supervisor import say
from .switching import SwitchFailed, hand_over, in_memory
from .watchers import Watchers

FOLDER, ENGINES_FILE = "containers", "engines"
"""Of the ends that watchers leave, until they are in the journal; and which engines were used, so
that a successor can ask them what is left."""
WATCHERS_MAX = 5
"""Watchers of one run that may die before it is given up."""
_OLD_OUTPUT = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK


class Containers:
    """The containers of one keeper. Nothing is made before there is one."""

    def __init__(self, folder: str, *, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._watchers = Watchers(container_run, folder)
        self._engines: list[str] = []
        self._mark = ""
        self.helper_pid = 0

    @property
    def mark(self) -> str:
        """A mark that belongs to this folder and to no other one on this machine."""
        if not self._mark:
            number = processes.folder_number(self._folder).replace(":", "-")
            self._mark = f"{keeper_id(self._folder, self._disk)}-{number}"
        return self._mark

    def owned(self, run: KeeperRun) -> None:
        """Note the account that owns the run's sandbox, which is journaled for a successor."""
        account: Account | None = run.command.get("account")
        run.container["uid"] = account.uid if account is not None else os.geteuid()

    def start(self, run: KeeperRun, sandbox: str) -> int:
        """Start the watcher of a run; return its pid. Raises ContainerRefused, SpawnFailed."""
        account: Account | None = run.command.get("account")
        user = _user(run, account)
        place = f"{self._folder}/{sandbox}"
        home = ContainerSettings(self.mark, place, ulimits())
        told = run.command["environment"]
        if run.volume:
            home = home._replace(volume=f"{self._folder}/{volumes.folder_of(run)}")
            told = {volumes.VARIABLE: engine.volume_path(run), **told}
        create = engine.create_arguments(run, home, user=user)
        variables = engine.environment_file(told)
        opened: list[int] = []
        try:
            self._remember(run.container["engine"])
            opened.append(in_memory(variables))
            more = {"create": create, "environment_fd": engine.ENVIRONMENT_FD}
            opened += hand_over(place, account)
            variables_fd, _, output, errors = opened
            return self._watchers.spawn(
                {**self._told(run, place, mode=container_run.RUN), **more},
                run,
                passed=[(output, 1), (errors, 2), (variables_fd, engine.ENVIRONMENT_FD)],
            )
        except (OSError, SwitchFailed) as trouble:
            raise SpawnFailed(f"container: {trouble}", status=None) from trouble
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def resume(self, run: KeeperRun, sandbox: str) -> int:
        """Start another watcher of a run; return its pid. Raises SpawnFailed."""
        run.watchers += 1
        if run.watchers > WATCHERS_MAX:
            raise SpawnFailed(f"{WATCHERS_MAX} watchers have died", status=None)
        place = f"{self._folder}/{sandbox}"
        opened: list[int] = []
        try:
            opened += [_output(place, name, uid=run.container["uid"]) for name in _OUTPUTS]
            told = self._told(run, place, mode=container_run.RESUME)
            return self._watchers.spawn(told, run, passed=[*zip(opened, (1, 2), strict=True)])
        except (OSError, LookupError) as trouble:
            raise SpawnFailed(f"container: {trouble}", status=None) from trouble
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def told(self, run: KeeperRun) -> Record | None:
        """Return the end that the watcher wrote; None if it died before."""
        try:
            found = json.loads(read_file(self._end_file(run.run_id), self._disk))
            return found if isinstance(found, dict) and "is" in found else None
        except (OSError, ValueError):
            return None

    def forget(self, run: KeeperRun) -> None:
        """Remove the end that the watcher wrote: it is in the journal."""
        if run.container:
            try:
                self._disk.unlink(self._end_file(run.run_id))
            except OSError:
                return  # it had none, or the next keeper removes it

    def sweep(self, keep: Iterable[str]) -> None:
        """Let a helper remove the containers of runs that are over, at the start of a keeper."""
        kept = {*keep}
        try:
            engines = json.loads(read_file(f"{self._folder}/{FOLDER}/{ENGINES_FILE}", self._disk))
            self._engines = [str(path) for path in engines]
            with self._disk.scandir(f"{self._folder}/{FOLDER}") as entries:
                ends = [one.path for one in entries if one.name != ENGINES_FILE]
            for path in ends:
                # A watcher that lives on may be writing how its run ended.
                if os.path.basename(path).removesuffix(container_run.UNFINISHED) not in kept:
                    self._disk.unlink(path)
            names = [engine.name_of(self.mark, run_id) for run_id in kept]
            prefix = engine.name_of(self.mark, "")
            told = {"mode": container_run.SWEEP, "engines": self._engines, "keep": names}
            label = f"{engine.KEEPER_LABEL}={self.mark}"
            told = {**told, "label": label, "prefix": prefix}
            self.helper_pid = self._watchers.spawn(told, None)
        except FileNotFoundError:
            return  # no container was ever started
        except (OSError, ValueError, TypeError) as trouble:
            say(f"containers that are left cannot be removed: {trouble}")

    def _told(self, run: KeeperRun, place: str, *, mode: str) -> Record:
        return {
            "mode": mode,
            "engine": run.container["engine"],
            "image": run.container["image"],
            "name": engine.name_of(self.mark, run.run_id),
            "label": f"{engine.RUN_LABEL}={run.run_id}",
            "end": self._end_file(run.run_id),
            "sandbox": place,
        }

    def _end_file(self, run_id: str) -> str:
        return f"{self._folder}/{FOLDER}/{run_id}"

    def _remember(self, path: str) -> None:
        if path in self._engines:
            return
        make_folder(f"{self._folder}/{FOLDER}", self._disk)
        name = f"{self._folder}/{FOLDER}/{ENGINES_FILE}"
        replace_file(name, json.dumps([*self._engines, path]).encode(), disk=self._disk)
        self._engines.append(path)


_OUTPUTS = ("stdout", "stderr")


def _user(run: KeeperRun, account: Account | None) -> RunUser | None:
    """Return the user of the container; None leaves it to the image.

    With docker it is never left to the image: there root is the machine's root, whoever asked.
    """
    if account is not None:
        return RunUser(account.uid, account.gid, account.groups)
    docker = os.path.basename(run.container["engine"]) == engine.DOCKER
    if docker and os.geteuid() != 0:
        return RunUser(os.geteuid(), os.getegid(), tuple(os.getgroups()))
    return None


def ulimits() -> dict[str, tuple[int, int]]:
    """Return the keeper's limits, which runs without a container have as well.

    Engines have their own, which they may not be allowed to set.
    """
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    found = {name: resource.getrlimit(number) for name, number in kinds.items()}
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        most = int(file.read())
    # podman lowers its own limit to this number, which is none, and may not raise it again.
    low, high = (min(limit, most) if limit >= 0 else most for limit in found["nproc"])
    return {**found, "nproc": (low, high)}


def _output(place: str, name: str, *, uid: int) -> int:
    """Open a log of the container as it is.

    The folder may be another account's, who could have put something else in its place; then the
    rest of the output is dropped.
    """
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.open(name, _OLD_OUTPUT, dir_fd=folder)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    finally:
        os.close(folder)
    status = os.fstat(found)
    if stat.S_ISREG(status.st_mode) and (status.st_uid, status.st_nlink) == (uid, 1):
        os.set_blocking(found, True)
        return found
    os.close(found)
    return os.open(os.devnull, os.O_WRONLY)
