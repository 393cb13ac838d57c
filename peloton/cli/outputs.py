"""What the instances of a job print, on our own stdout and stderr.

`Live` prints one instance as it runs; `Collected` prints each of many when it has ended. Must not
decode: bytes of a task are bytes here, apart from a prefix before each line.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

from peloton.cli.output import command, hint
from peloton.sdk.errors import NotFound, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client

FILES = ("stdout", "stderr")
LIVE_PAUSE_S = 0.1
FETCHERS = 4
OVER = ("SUCCEEDED", "FAILED", "KILLED", "LOST", "DELETED")
KEPT_MAX = 1000
"""Of so many ended runs a cluster keeps the files, where it is not told another number."""
TAIL_LINES, TAIL_BYTES = 5, 64 * 1024
CHUNK_MAX_BYTES = 16 * 1024 * 1024
"""Of an instance's file that is printed when it has ended; longer ones are cut, and say so."""


def target(filename: str) -> BinaryIO:
    return (sys.stdout if filename == "stdout" else sys.stderr).buffer


class Live:
    """Prints both files of one instance, run by run, until the job is over. A context manager.

    A run that begins and ends between two looks is passed over.
    """

    def __init__(self, peloton: Client, job: str, *, instance: int = 0) -> None:
        self._peloton, self._job, self._instance = peloton, job, instance
        self._stop = command("job", "stop", job)  # here: the threads have no context of click's
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._print, args=(name,), name=f"log-{name}", daemon=True)
            for name in FILES
        ]

    def __enter__(self) -> Live:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._over.set()
        if kind is None:
            for thread in self._threads:
                thread.join()

    def _print(self, filename: str) -> None:
        try:
            self._follow(filename)
        except BrokenPipeError:
            # As a command in a pipe may; but one that writes without an end would go unnoticed.
            hint(f"nobody reads {filename} any more; the job goes on, `{self._stop}` ends it")
        except (PelotonError, OSError) as error:
            hint(f"{filename} of the task is not to be had: {error}")

    def _follow(self, filename: str) -> None:
        run, out = "", target(filename)
        while True:
            is_last = self._over.is_set()  # looked at first: what is read then is complete
            now = self._begun()
            if now and now != run:
                run = now
                try:
                    for piece in self._peloton.tasks.follow(
                        self._job, self._instance, run=run, filename=filename, pause_s=LIVE_PAUSE_S
                    ):
                        out.write(piece)
                        out.flush()
                except NotFound:
                    continue  # it never ran, or simulated runs leave no files
            elif is_last:
                return
            else:
                self._over.wait(LIVE_PAUSE_S)

    def _begun(self) -> str:
        """The id of the run that has a host; empty while it waits for one."""
        runtime = self._peloton.tasks.get(self._job, self._instance).result.runtime
        return str(runtime.mesosTaskId.value) if runtime.host else ""


class Collected:
    """Prints what instances have printed, each once, when it has ended."""

    def __init__(
        self,
        peloton: Client,
        job: str,
        *,
        count: int,
        in_order: bool = False,
        tags: Sequence[str] | None = None,
    ) -> None:
        """`tags`: what stands before each line of an instance, by its number."""
        self._peloton, self._job, self._count = peloton, job, count
        self._in_order, self._tags = in_order, tags
        self._next = 0
        """All instances below are printed."""
        self._printed: set[int] = set()
        self.missing = 0
        """Instances whose files could not be had."""

    def missing_text(self) -> str:
        """For people, with the likely cause."""
        return (
            f"the files of {self.missing} instances were not to be had: a cluster keeps those of "
            f"the newest runs only ({KEPT_MAX} of them, or --keep-sandboxes)"
        )

    def is_behind(self, ended: int) -> bool:
        """Whether more instances have ended than are printed."""
        return ended > self._next + len(self._printed)

    def step(self) -> None:
        """Print what has ended since."""
        from peloton.sdk.render import enum_name

        answer = self._peloton.tasks.list(self._job, only=(self._next, self._count))
        found = answer.result.value
        ready = []
        for number in sorted(found):
            over = enum_name(found[number].runtime, "state") in OVER
            if over and number not in self._printed:
                ready.append(number)
            elif not over and self._in_order:
                break
        self._print(ready)
        self._printed.update(ready)
        while self._next in self._printed:
            self._printed.remove(self._next)
            self._next += 1

    def _print(self, instances: Iterable[int]) -> None:
        for number, files in self._fetched(instances):
            tag = f"{self._tags[number]}\t" if self._tags is not None else ""
            for name in FILES:
                write(target(name), files.get(name, b""), tag=tag)

    def _fetched(self, instances: Iterable[int]) -> Iterator[tuple[int, dict[str, bytes]]]:
        """The files of instances, in their order. Only a few wait here to be printed: those of all
        may be more than the memory holds."""
        ahead: deque[tuple[int, Future[dict[str, bytes]]]] = deque()
        with ThreadPoolExecutor(FETCHERS) as fetchers:
            for number in instances:
                ahead.append((number, fetchers.submit(self.fetch, number)))
                if len(ahead) == FETCHERS:
                    first, files = ahead.popleft()
                    yield first, files.result()
            while ahead:
                first, files = ahead.popleft()
                yield first, files.result()

    def fetch(self, instance: int, names: tuple[str, ...] = FILES) -> dict[str, bytes]:
        """The files of an instance; empty where they are gone."""
        try:
            pieces = self._peloton.tasks.outputs(self._job, instance, filenames=names)
            return {name: first_of(piece) for name, piece in pieces.items()}
        except PelotonError:
            self.missing += 1  # counted, and said once at the end
            return {}


def first_of(pieces: Iterable[bytes]) -> bytes:
    found, size = [], 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size > CHUNK_MAX_BYTES:
            found.append(b"\n[cut here: `peloton task logs` prints all of it]\n")
            break
    return b"".join(found)


def write(out: BinaryIO, data: bytes, *, tag: str) -> None:
    """Whole lines, so that the outputs of two instances never share one."""
    if not data:
        return
    if not data.endswith(b"\n"):
        data += b"\n"
    if tag:
        prefix = tag.encode()
        data = b"".join(prefix + line for line in data.splitlines(keepends=True))
    out.write(data)
    out.flush()


def tail(data: bytes) -> list[str]:
    """The last lines, as text."""
    text = data[-TAIL_BYTES:].decode("utf-8", errors="backslashreplace")
    return text.rstrip().splitlines()[-TAIL_LINES:]


def ended_of(counts: Any) -> int:
    """How many instances have ended."""
    return sum(counts.get(name, 0) for name in OVER)
