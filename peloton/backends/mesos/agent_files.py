"""The files of runs on the agents of a Mesos cluster, read through the API of each agent.

Implements `FarFiles`. A sandbox is named by framework and executor, which an agent understands from
its start until it has removed it, however often it was itself started meanwhile under one id; so
nothing needs to be known of its folders. A run is an executor of its own, or has one. That of a
pod of several containers has the run in its name, and in `tasks/` the sandbox of each, whose files
are shown as `NAME.stdout` and so on, as the keeper has them. Where a run is one of many tasks of an
executor, its files are in the folder `runs/` and its name in the sandbox of that.

The agent refuses files outside of a sandbox, also through a link. It would wait for the writer of a
pipe, with a thread of its own: so only a file that is listed as a regular one is read.
"""

from __future__ import annotations

import base64
import contextlib
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from peloton.actors.task.messages import parse_pod
from peloton.backends.mesos.masters.agent_book import AgentBook
from peloton.backends.mesos.masters.operator_api import (
    SILENCE_S_MAX,
    Credential,
    HttpDoor,
    NoAnswer,
    NotAllowed,
    NotThere,
    OperatorApi,
)
from peloton.backends.mesos.runs.groups import run_of_executor
from peloton.backends.mesos.runs.task_info import OWN_EXECUTOR
from peloton.runtime.far_files import (
    FarEntry,
    FarRun,
    FilesAway,
    FilesRemoved,
    NoFile,
)

TASKS = "runs"
"""The folder of our own executor's sandbox with those of its tasks."""
OF_CONTAINERS = "tasks"
"""The same of the default executor of Mesos."""
READ_BYTES_MAX = 64 * 1024
"""An agent reads no more at once."""
ANSWER_BYTES_MAX = 1024 * 1024
LISTING_BYTES_MAX = 32 * 1024 * 1024
STATE_BYTES_MAX = 64 * 1024 * 1024
EXECUTORS_MAX = 64
"""In the sandboxes of so many executors a run is looked for."""
SANDBOXES_MAX = 4096
"""Of so many runs we remember where their sandboxes are."""
NANO = 1_000_000_000

T = TypeVar("T")


class AgentFiles:
    """The FarFiles of one cluster. Any number of threads may read."""

    def __init__(
        self,
        cluster: str,
        book: AgentBook,
        *,
        framework: str,
        credential: Credential,
        timeout_s: float = SILENCE_S_MAX,
    ) -> None:
        """Set up. `framework`: our id at the master. `credential`: for agents."""
        self._prefix = f"{cluster}."
        self._book, self._framework, self._credential = book, framework, credential
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._sandboxes_known: OrderedDict[tuple[FarRun, HttpDoor], _Sandbox] = OrderedDict()

    def has_host(self, host: str) -> bool:
        """Return whether the host is an agent of this cluster, by its name."""
        return host.startswith(self._prefix)

    def manager(self) -> tuple[str, str]:
        """Return the address and port of the leading master."""
        found = self._book.leader
        return (found.host, str(found.port)) if found is not None else ("", "")

    def listing(self, run: FarRun, parts: Sequence[str]) -> list[FarEntry]:
        """Return the entries of a folder in the run's sandbox."""
        with self._sandbox(run) as (agent, root, found):
            return agent.listing("/".join((root, *parts))) if parts else [*found]

    @contextlib.contextmanager
    def open(self, run: FarRun, parts: Sequence[str]) -> Iterator[AgentFile]:
        """Open a regular file in the run's sandbox."""
        *folder, name = parts
        with self._sandbox(run) as (agent, root, found):
            if folder:
                found = _paths(agent, "/".join((root, *folder)))
            entry = next((each for each in found if each.name == name), None)
            if entry is None or not stat.S_ISREG(entry.mode):
                raise NoFile("/".join(parts))
            path = found[entry]
            # Whether it may be read at all, and how far it goes by now.
            _, size = agent.read(path, 0, length=1)
            yield AgentFile(agent, path, size=size)

    @contextlib.contextmanager
    def _sandbox(self, run: FarRun) -> Iterator[tuple[_Agent, str, dict[FarEntry, str]]]:
        """Yield the agent that has the run's sandbox, its path, and its top entries with paths.

        Raises `FilesRemoved` if there is none. Of several agents on a machine each may have been
        the host, so files that one of them may have, which does not answer, do not count as
        removed.
        """
        doors = self._doors(run)
        none: FilesRemoved | FilesAway | None = None
        for door in sorted(doors, key=lambda one: (run, one) not in self._sandboxes_known):
            with contextlib.closing(
                OperatorApi(door, self._credential, tls=self._book.tls, timeout_s=self._timeout_s)
            ) as api:
                hostname = run.host.removeprefix(self._prefix)
                agent = _Agent(api, host=run.host, doubt=partial(self._book.doubt, hostname))
                try:
                    root, found = self._sandbox_at(agent, run, door=door)
                except (FilesRemoved, FilesAway) as why:
                    none = why if none is None or isinstance(why, FilesAway) else none
                    continue
                yield agent, root, found
                return
        assert none is not None
        raise none

    def _doors(self, run: FarRun) -> Sequence[HttpDoor]:
        """Return the addresses of the host's agents."""
        if parse_pod(run.run) is None:
            raise NoFile(run.run)
        hostname = run.host.removeprefix(self._prefix)
        try:
            doors = self._book.doors_of(hostname)
        except NoAnswer as error:
            raise FilesAway(
                f"host {run.host}: the master does not say where it is: {error}"
            ) from None
        if not doors:
            raise FilesAway(f"host {run.host}: no such agent is registered at the master")
        return doors

    def _sandbox_at(
        self, agent: _Agent, run: FarRun, *, door: HttpDoor
    ) -> tuple[str, dict[FarEntry, str]]:
        """Return path and top entries of the run's sandbox at this agent."""
        known = self._sandboxes_known.get((run, door))
        for place in (known,) if known is not None else self._sandboxes(agent, run.run):
            try:
                found = _paths(agent, place.root)
            except NoFile:
                continue
            for name, task in place.containers:
                with contextlib.suppress(NoFile):  # it has not begun
                    found |= _paths(agent, f"{place.root}/{OF_CONTAINERS}/{task}", name=name)
            if place.is_known:
                self._remember((run, door), place)
            return place.root, found
        with self._lock:
            self._sandboxes_known.pop((run, door), None)
        text = f"the agent of host {run.host} has no files of run {run.run}"
        raise FilesRemoved(f"{text}: it removes those of ended runs after a while")

    def _sandboxes(self, agent: _Agent, run: str) -> Iterator[_Sandbox]:
        """Yield the places where the sandbox of a run may be."""
        yield _Sandbox(self._of_executor(run))
        yield _Sandbox(self._of_executor(f"{OWN_EXECUTOR}{run}"))
        others = agent.executors(self._framework)
        pods = [one for one in others if run_of_executor(one.id) == run]
        for one in pods:
            yield _Sandbox(one.directory, one.containers, is_known=bool(one.containers))
        # Of several executors that had one id each has a sandbox of its own.
        ours = [one for one in others if not run_of_executor(one.id)]
        for one in ours[:EXECUTORS_MAX]:
            yield _Sandbox(f"{one.directory}/{TASKS}/{run}")

    def _of_executor(self, executor: str) -> str:
        return f"/frameworks/{self._framework}/executors/{executor}/runs/latest"

    def _remember(self, what: tuple[FarRun, HttpDoor], place: _Sandbox) -> None:
        with self._lock:
            self._sandboxes_known[what] = place
            self._sandboxes_known.move_to_end(what)
            while len(self._sandboxes_known) > SANDBOXES_MAX:
                self._sandboxes_known.popitem(last=False)


class _Agent:
    """An agent during one read; its failures become those of the port."""

    def __init__(self, api: OperatorApi, *, host: str, doubt: Callable[[], None]) -> None:
        """Set up. `doubt`: called if no agent answers as one."""
        self._api, self._host, self._doubt = api, host, doubt

    def ask(self, call: Mapping[str, Any], read: Callable[[Any], T], *, bytes_max: int) -> T:
        """Return the result of `read` on the answer."""
        return self._read(partial(self._api.ask, call, bytes_max=bytes_max), read)

    def _read(self, ask: Callable[[], Any], read: Callable[[Any], T]) -> T:
        try:
            return read(ask())
        except NotThere:
            raise NoFile(self._host) from None
        except NotAllowed as error:
            hint = "give `agent_principal` and `agent_secret_file` of backend.mesos"
            raise FilesAway(f"the agent of host {self._host}: {error}; {hint}") from None
        except NoAnswer as error:
            self._doubt()
            raise FilesAway(f"the agent of host {self._host}: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError):
            text = f"the agent of host {self._host} answers in words that we do not know"
            raise FilesAway(text) from None

    def listing(self, path: str) -> list[FarEntry]:
        """Return the entries of a folder, by name."""
        call = {"type": "LIST_FILES", "list_files": {"path": path}}
        return self.ask(call, _entries, bytes_max=LISTING_BYTES_MAX)

    def read(self, path: str, start: int, *, length: int) -> tuple[bytes, int]:
        """Return a part of a file, and the size of the whole."""
        what = {"path": path, "offset": start, "length": length}
        call = {"type": "READ_FILE", "read_file": what}
        data, size = self.ask(call, _part, bytes_max=ANSWER_BYTES_MAX)
        return data[:length], size

    def executors(self, framework: str) -> list[_Executor]:
        """Return our executors that have other names than runs, the newest first."""
        read = partial(_executors, framework)
        return self._read(partial(self._api.state, bytes_max=STATE_BYTES_MAX), read)


class _Sandbox(NamedTuple):
    """A sandbox, and the containers that have theirs in it: name and task of each.

    The containers are not known before they begin.
    """

    root: str
    containers: tuple[tuple[str, str], ...] = ()
    is_known: bool = True


class _Executor(NamedTuple):
    """An executor, its sandbox, and its tasks, by name and id."""

    id: str
    directory: str
    containers: tuple[tuple[str, str], ...]


def _paths(agent: _Agent, folder: str, *, name: str = "") -> dict[FarEntry, str]:
    """Return the entries of a folder, with paths.

    Of a container's folder only regular files are returned, with the container's name before their
    own.
    """
    found = agent.listing(folder)
    if not name:
        return {each: f"{folder}/{each.name}" for each in found}
    return {
        each._replace(name=f"{name}.{each.name}"): f"{folder}/{each.name}"
        for each in found
        if stat.S_ISREG(each.mode)
    }


class AgentFile:
    """A file that is read piece by piece."""

    def __init__(self, agent: _Agent, path: str, *, size: int) -> None:
        self._agent, self._path, self.size = agent, path, size

    def read(self, start: int, length: int) -> bytes:
        """Read up to so many bytes."""
        return self._agent.read(self._path, start, length=min(length, READ_BYTES_MAX))[0]


def _entries(answer: Any) -> list[FarEntry]:
    infos = answer["list_files"].get("file_infos", ())
    return sorted(
        FarEntry(
            str(info["path"]).rpartition("/")[2],
            int(info.get("size", 0)),
            info.get("mtime", {}).get("nanoseconds", 0) / NANO,
            int(info.get("mode", 0)),
            int(info.get("nlink", 0)),
            str(info.get("uid", "")),
            str(info.get("gid", "")),
        )
        for info in infos
    )


def _part(answer: Any) -> tuple[bytes, int]:
    found = answer["read_file"]
    return base64.b64decode(found.get("data", ""), validate=True), int(found["size"])


def _executors(framework: str, answer: Any) -> list[_Executor]:
    ours = [
        each
        for each in (*answer.get("frameworks", ()), *answer.get("completed_frameworks", ()))
        if each["id"] == framework
    ]
    found = [one for each in ours for one in each.get("executors", ())]
    found += [one for each in ours for one in reversed(each.get("completed_executors", ()))]
    ids = ((str(one["id"]).removeprefix(OWN_EXECUTOR), one) for one in found)
    return [_executor(one) for id_, one in ids if parse_pod(id_) is None]


def _executor(told: Any) -> _Executor:
    tasks = [one for kind in ("tasks", "completed_tasks") for one in told.get(kind, ())]
    id_ = str(told["id"])
    containers = [(str(one["name"]), str(one["id"])) for one in tasks if run_of_executor(id_)]
    return _Executor(id_, str(told["directory"]), tuple(sorted(containers)))
