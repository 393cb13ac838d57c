"""Runs that are containers: their watchers are started, signalled, and asked how it ended.

Turns a run into a watcher (`container_run.py`), which speaks to the engine, and the file that one
leaves into the end. It must not wait for an engine, nor touch a container whose run is not known to
have ended: one that lost its watcher gets another.
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
from .engine import Place, RunUser
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
    """Of one keeper. Nothing is made before there is one."""

    def __init__(self, folder: str, *, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._watchers = Watchers(container_run, folder)
        self._engines: list[str] = []
        self._mark = ""
        self.helper_pid = 0

    @property
    def mark(self) -> str:
        """Of this folder and no other one on this machine."""
        if not self._mark:
            number = processes.folder_number(self._folder).replace(":", "-")
            self._mark = f"{keeper_id(self._folder, self._disk)}-{number}"
        return self._mark

    def owned(self, run: KeeperRun) -> None:
        """Note whose its sandbox is: it is in the journal, for a successor."""
        account: Account | None = run.command.get("account")
        run.container["uid"] = account.uid if account is not None else os.geteuid()

    def start(self, run: KeeperRun, sandbox: str) -> int:
        """The pid of its watcher. Raises ContainerRefused, SpawnFailed."""
        account: Account | None = run.command.get("account")
        user = _user(run, account)
        place = f"{self._folder}/{sandbox}"
        home = Place(self.mark, place, ulimits())
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
        """The pid of another watcher. Raises SpawnFailed."""
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
        """What its watcher told of its end; None if it died before."""
        try:
            found = json.loads(read_file(self._end_file(run.run_id), self._disk))
            return found if isinstance(found, dict) and "is" in found else None
        except (OSError, ValueError):
            return None

    def forget(self, run: KeeperRun) -> None:
        """Its end is in the journal."""
        if run.container:
            try:
                self._disk.unlink(self._end_file(run.run_id))
            except OSError:
                return  # it had none, or the next keeper removes it

    def sweep(self, keep: Iterable[str]) -> None:
        """At the start of a keeper: let a helper remove the containers of runs that are over, and
        forget their ends."""
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
    """As whom; None leaves it to the image, whose root is the keeper's own user. Not so with
    docker: its root is the machine's, whoever asked."""
    if account is not None:
        return RunUser(account.uid, account.gid, account.groups)
    docker = os.path.basename(run.container["engine"]) == engine.DOCKER
    if docker and os.geteuid() != 0:
        return RunUser(os.geteuid(), os.getegid(), tuple(os.getgroups()))
    return None


def ulimits() -> dict[str, tuple[int, int]]:
    """As runs without a container have them: the keeper's. Engines have their own, which they may
    not be allowed to set."""
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    found = {name: resource.getrlimit(number) for name, number in kinds.items()}
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        most = int(file.read())
    # podman lowers its own limit to this number, which is none, and may not raise it again.
    low, high = (min(limit, most) if limit >= 0 else most for limit in found["nproc"])
    return {**found, "nproc": (low, high)}


def _output(place: str, name: str, *, uid: int) -> int:
    """A log as it is. The folder may be another account's, who could have put something else in
    its place; then the rest of the output goes nowhere."""
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
