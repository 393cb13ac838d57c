"""The files of runs on the agents of a Mesos cluster, read through the API of each agent.

Implements `FarFiles`. A sandbox is named by framework and executor, which an agent understands from
its start until it has removed it, however often it was itself started meanwhile under one id; so
nothing needs to be known of its folders. A run is an executor of its own, or has one of its own;
where it is one of many tasks of an executor, its files are in the folder `runs/` and its name in
the sandbox of that.

What is outside of a sandbox the agent refuses, also through a link. It would wait for the writer of
a pipe, with a thread of its own: so only what is listed as a regular file is read.
"""

from __future__ import annotations

import base64
import contextlib
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from peloton.actors.task.messages import parse_pod
from peloton.backends.mesos.agent_book import AgentBook
from peloton.backends.mesos.operator_api import (
    SILENCE_S_MAX,
    Credential,
    NoAnswer,
    NotAllowed,
    NotThere,
    OperatorApi,
)
from peloton.backends.mesos.task_info import OWN_EXECUTOR
from peloton.runtime.far_files import (
    FarEntry,
    FarRun,
    FilesAway,
    FilesRemoved,
    NoFile,
)

TASKS = "runs"
"""The folder of our own executor's sandbox with those of its tasks."""
READ_BYTES_MAX = 64 * 1024
"""An agent reads no more at once."""
ANSWER_BYTES_MAX = 1024 * 1024
LISTING_BYTES_MAX = 32 * 1024 * 1024
STATE_BYTES_MAX = 64 * 1024 * 1024
EXECUTORS_MAX = 64
"""In the sandboxes of so many executors a run is looked for."""
ROOTS_MAX = 4096
"""Of so many runs we remember where their sandboxes are."""
NANO = 1_000_000_000

T = TypeVar("T")


class AgentFiles:
    """Those of one cluster. Any number of threads may read."""

    def __init__(
        self,
        cluster: str,
        book: AgentBook,
        *,
        framework: str,
        credential: Credential,
        timeout_s: float = SILENCE_S_MAX,
    ) -> None:
        """`framework`: our id at the master. `credential`: whom agents know us as."""
        self._prefix = f"{cluster}."
        self._book, self._framework, self._credential = book, framework, credential
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._roots: OrderedDict[FarRun, str] = OrderedDict()

    def has_host(self, host: str) -> bool:
        """Whether it is an agent of this cluster, by its name."""
        return host.startswith(self._prefix)

    def manager(self) -> tuple[str, str]:
        """The master that leads."""
        found = self._book.leader
        return (found.host, str(found.port)) if found is not None else ("", "")

    def listing(self, run: FarRun, parts: Sequence[str]) -> list[FarEntry]:
        """What is in a folder of its sandbox."""
        with self._agent(run) as agent:
            root, found = self._sandbox(agent, run)
            return agent.listing("/".join((root, *parts))) if parts else found

    @contextlib.contextmanager
    def open(self, run: FarRun, parts: Sequence[str]) -> Iterator[AgentFile]:
        """A regular file of its sandbox."""
        *folder, name = parts
        with self._agent(run) as agent:
            root, found = self._sandbox(agent, run)
            entries = agent.listing("/".join((root, *folder))) if folder else found
            entry = next((each for each in entries if each.name == name), None)
            if entry is None or not stat.S_ISREG(entry.mode):
                raise NoFile("/".join(parts))
            path = "/".join((root, *parts))
            # Whether it may be read at all, and how far it goes by now.
            _, size = agent.read(path, 0, length=1)
            yield AgentFile(agent, path, size=size)

    @contextlib.contextmanager
    def _agent(self, run: FarRun) -> Iterator[_Agent]:
        if parse_pod(run.run) is None:
            raise NoFile(run.run)
        hostname = run.host.removeprefix(self._prefix)
        try:
            door = self._book.door_of(hostname)
        except NoAnswer as error:
            raise FilesAway(
                f"host {run.host}: the master does not say where it is: {error}"
            ) from None
        if door is None:
            raise FilesAway(f"host {run.host}: no such agent is registered at the master")
        with contextlib.closing(
            OperatorApi(door, self._credential, timeout_s=self._timeout_s)
        ) as api:
            yield _Agent(api, host=run.host, doubt=partial(self._book.doubt, hostname))

    def _sandbox(self, agent: _Agent, run: FarRun) -> tuple[str, list[FarEntry]]:
        """Where it is, and what is at its top; `FilesRemoved` if there is none."""
        known = self._roots.get(run)
        for root in (known,) if known is not None else self._places(agent, run.run):
            try:
                found = agent.listing(root)
            except NoFile:
                continue
            self._remember(run, root)
            return root, found
        with self._lock:
            self._roots.pop(run, None)
        text = f"the agent of host {run.host} has no files of run {run.run}"
        raise FilesRemoved(f"{text}: it removes those of ended runs after a while")

    def _places(self, agent: _Agent, run: str) -> Iterator[str]:
        """Where the sandbox of a run may be."""
        yield self._of_executor(run)
        yield self._of_executor(f"{OWN_EXECUTOR}{run}")
        # Of several executors that had one id each has a sandbox of its own.
        for directory in agent.directories(self._framework):
            yield f"{directory}/{TASKS}/{run}"

    def _of_executor(self, executor: str) -> str:
        return f"/frameworks/{self._framework}/executors/{executor}/runs/latest"

    def _remember(self, run: FarRun, root: str) -> None:
        with self._lock:
            self._roots[run] = root
            self._roots.move_to_end(run)
            while len(self._roots) > ROOTS_MAX:
                self._roots.popitem(last=False)


class _Agent:
    """One agent, for a while; what it does not give becomes a failure of the port."""

    def __init__(self, api: OperatorApi, *, host: str, doubt: Callable[[], None]) -> None:
        """`doubt`: called where no agent answers as one."""
        self._api, self._host, self._doubt = api, host, doubt

    def ask(self, call: Mapping[str, Any], read: Callable[[Any], T], *, bytes_max: int) -> T:
        """What `read` makes of the answer."""
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
        """A folder, by name."""
        call = {"type": "LIST_FILES", "list_files": {"path": path}}
        return self.ask(call, _entries, bytes_max=LISTING_BYTES_MAX)

    def read(self, path: str, start: int, *, length: int) -> tuple[bytes, int]:
        """A part of a file, and the size of the whole."""
        what = {"path": path, "offset": start, "length": length}
        call = {"type": "READ_FILE", "read_file": what}
        data, size = self.ask(call, _part, bytes_max=ANSWER_BYTES_MAX)
        return data[:length], size

    def directories(self, framework: str) -> list[str]:
        """The sandboxes of our executors that have other names than runs, the newest first."""
        read = partial(_directories, framework)
        found = self._read(partial(self._api.state, bytes_max=STATE_BYTES_MAX), read)
        return found[:EXECUTORS_MAX]


class AgentFile:
    """A file that is read piece by piece."""

    def __init__(self, agent: _Agent, path: str, *, size: int) -> None:
        self._agent, self._path, self.size = agent, path, size

    def read(self, start: int, length: int) -> bytes:
        """So many bytes or fewer."""
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


def _directories(framework: str, answer: Any) -> list[str]:
    ours = [
        each
        for each in (*answer.get("frameworks", ()), *answer.get("completed_frameworks", ()))
        if each["id"] == framework
    ]
    found = [one for each in ours for one in each.get("executors", ())]
    found += [one for each in ours for one in reversed(each.get("completed_executors", ()))]
    return [
        str(one["directory"])
        for one in found
        if parse_pod(str(one["id"]).removeprefix(OWN_EXECUTOR)) is None
    ]
