"""Output of the instances of a job: printed on stdout and stderr, or written into files.

`Live` prints one instance as it runs; `Collected` hands on each of many when it has ended, in as
many calls as their output takes. Bytes of a task are never decoded, apart from a prefix before each
line. What was handed on is not kept, as it may be large.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click

from peloton.cli.shared.output import command, hint
from peloton.cli.texts.task_texts import OVER
from peloton.sdk.errors import NotFound, PelotonError, ServiceUnavailable, Unsupported
from peloton.sdk.sandbox import REMOVED

if TYPE_CHECKING:
    from peloton.sdk.client import Client

FILES = ("stdout", "stderr")
LIVE_PAUSE_S = 0.1
TAIL_LINES, TAIL_BYTES = 5, 64 * 1024
WINDOW = 1000
"""Instances that are asked for in one call."""
IDLE_MAX = 4
"""So many calls in a row that bring nothing end a look: what is between two attempts counts as
failed, and has no output to hand on yet."""
SIGNAL_CODE_FIRST = 128
Pieces = Iterable[bytes]


def target(filename: str) -> BinaryIO:
    return (sys.stdout if filename == "stdout" else sys.stderr).buffer


def gone_text(count: int, why: str) -> str:
    """Return text for people about output that is gone, with the reason of the first."""
    what = "1 instance" if count == 1 else f"{count} instances"
    return f"the output of {what} is gone, and was not handed on: {why}"


class Live:
    """Prints both files of one instance, run by run, until the job is over. A context manager.

    A run that begins and ends between two looks is skipped.
    """

    def __init__(self, peloton: Client, job: str, *, instance: int = 0) -> None:
        self._peloton, self._job, self._instance = peloton, job, instance
        self._stop = command("job", "stop", job)  # here: the threads have no context of click's
        self._over = threading.Event()
        self._left = False  # by an error, which is what is to be said
        self.gone = ""
        """Why output is missing that was there; empty where none is."""
        self._threads = [
            threading.Thread(target=self._print, args=(name,), name=f"log-{name}", daemon=True)
            for name in FILES
        ]

    def __enter__(self) -> Live:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._left = kind is not None
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
            if not self._left:
                hint(f"{filename} of the task cannot be read: {error}")

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
                except NotFound as error:  # else it never ran, or simulated runs leave no files
                    if error.kind == REMOVED:
                        self.gone = str(error)
            elif is_last:
                return
            else:
                self._over.wait(LIVE_PAUSE_S)

    def _begun(self) -> str:
        """Return the id of the run that has a host; empty while it waits for one."""
        runtime = self._peloton.tasks.get(self._job, self._instance).result.runtime
        return str(runtime.mesosTaskId.value) if runtime.host else ""


class Sink(Protocol):
    """Where the output of instances goes, one after the other."""

    def take(self, found: Any, files: Iterable[tuple[str, Pieces]]) -> None:
        """Take all of an instance, its files in order. What they raise passes through."""


class Printed:
    """A sink that prints on stdout and stderr."""

    def __init__(self, tag: Callable[[int], int] | None = None) -> None:
        """Take what stands before each line of an instance, as a function of its number."""
        self._tag = tag

    def take(self, found: Any, files: Iterable[tuple[str, Pieces]]) -> None:
        tag = f"{self._tag(found.instance)}\t" if self._tag is not None else ""
        for name, pieces in files:
            write(sys.stderr.buffer if name == "stderr" else sys.stdout.buffer, pieces, tag=tag)


class Results:
    """A folder with one for each instance: N/stdout, N/stderr and N/code.

    N appears with all of it, or not at all.
    """

    def __init__(self, folder: Path, name: Callable[[int], int], *, replaces: bool) -> None:
        """Take the folder; `name` returns N for the number of an instance.

        `replaces`: N may exist already.
        """
        self._folder, self._name, self._replaces = folder, name, replaces

    def take(self, found: Any, files: Iterable[tuple[str, Pieces]]) -> None:
        """Write the output. Raises OSError."""
        name = str(self._name(found.instance))
        part, whole = self._folder / f".{name}.part", self._folder / name
        shutil.rmtree(part, ignore_errors=True)  # of a command that was killed
        part.mkdir()
        try:
            for file in FILES:
                (part / file).touch()
            for file, pieces in files:
                with (part / file).open("wb") as out:
                    out.writelines(pieces)
            (part / "code").write_text(code_text(found), encoding="ascii")
            if self._replaces and whole.exists():
                former = self._folder / f".{name}.former"
                shutil.rmtree(former, ignore_errors=True)
                whole.rename(former)
                part.rename(whole)
                shutil.rmtree(former, ignore_errors=True)
            else:
                part.rename(whole)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def code_text(found: Any) -> str:
    """Return the exit code of an instance, 128 + N for the signal N; empty without one."""
    if found.HasField("exit_code"):
        return f"{found.exit_code}\n"
    number = signal.Signals.__members__.get(found.signal)
    return f"{SIGNAL_CODE_FIRST + number}\n" if number is not None else ""


def results_folder(text: str, *, replaces: bool) -> Path:
    """Return the folder of `--results`, which is made if it does not exist. Raises UsageError."""
    folder = Path(text).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.scandir(folder) as entries:
            taken = next((one.name for one in entries if one.name.isdecimal()), "")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(0, "files cannot be created there")
    except OSError as error:
        raise click.UsageError(f"--results: {folder}: {error.strerror}") from None
    if taken and not replaces:
        why = f"{folder} has results already, such as {taken}: name another folder"
        raise click.UsageError(f"--results: {why}, or remove them")
    return folder


class Collected:
    """Hands on what instances have printed, each once, when it has ended."""

    def __init__(
        self, peloton: Client, job: str, *, count: int, sink: Sink, in_order: bool = False
    ) -> None:
        self._peloton, self._job, self._count = peloton, job, count
        self._sink, self._in_order = sink, in_order
        self._first = 0
        """All windows below are done."""
        self._had: dict[int, int] = {}
        """Of the others, by window, a bit for each instance that was handed on."""
        self._handed_on = self._next = 0
        self.missing, self.why = 0, ""
        """Instances whose output is gone, and why that of the first."""

    def is_behind(self, ended: int) -> bool:
        """Return whether more instances have ended than are handed on."""
        return ended > self._handed_on

    def step(self, ended: int) -> None:
        """Hand on what has ended since; `ended` instances have in all."""
        windows = range(self._first, -(-self._count // WINDOW))
        at = 0 if self._in_order else max(self._next - self._first, 0)
        idle = 0
        try:
            for window in (*windows[at:], *windows[:at]):
                if not self.is_behind(ended) or idle == IDLE_MAX:
                    return
                is_whole = self._is_whole(window)
                if not is_whole:
                    self._next, before = window, self._handed_on
                    is_whole = self._read(window)
                    idle = idle + 1 if self._handed_on == before else 0
                if is_whole and window == self._first:
                    self._had.pop(window, None)
                    self._first += 1
                elif not is_whole and self._in_order:
                    return
        except (ServiceUnavailable, Unsupported):
            return  # `finish` asks again; who waits for the job sees where nobody answers

    def finish(self) -> None:
        """Hand on the rest, as the job is over.

        A cluster of the original has no such call: all is gone. Raises PelotonError.
        """
        from peloton.sdk.ops import patiently

        self._in_order = False  # what has not ended by now never will
        for window in range(self._first, -(-self._count // WINDOW)):
            try:
                if not self._is_whole(window):
                    patiently(partial(self._read, window), silent=hint)
            except Unsupported as error:
                self.missing, self.why = self._count - self._handed_on, self.why or str(error)
                return

    def read(self, instances: Iterable[int], names: Sequence[str]) -> None:
        """Hand on these instances, whether they have ended or not, in their order."""
        from peloton.sdk.outputs import OutputsWanted, spans_of

        windows: dict[int, set[int]] = {}
        for number in instances:
            windows.setdefault(number // WINDOW, set()).add(number)
        for wanted in windows.values():
            first, last = min(wanted), max(wanted)
            others = (number for number in range(first, last) if number not in wanted)
            asked = OutputsWanted(first, last, spans_of(others), names=(*names,), running=True)
            for found in self._answers(asked):
                self._give(found)

    def _is_whole(self, window: int) -> bool:
        return self._had.get(window, 0).bit_count() == self._size(window)

    def _size(self, window: int) -> int:
        return min(WINDOW, self._count - window * WINDOW)

    def _read(self, window: int) -> bool:
        """Hand on what has ended of a window; return whether that is all of it."""
        from peloton.sdk.outputs import OutputsWanted, spans_of

        first, had = window * WINDOW, self._had.get(window, 0)
        numbers = (first + at for at in range(self._size(window)) if had >> at & 1)
        last = first + self._size(window) - 1
        wanted = OutputsWanted(first, last, spans_of(numbers), in_order=self._in_order)
        for found in self._answers(wanted):
            self._give(found)
            self._had[window] = self._had.get(window, 0) | 1 << found.instance - first
            self._handed_on += 1
        return self._is_whole(window)

    def _answers(self, wanted: Any) -> Iterator[Any]:
        while True:
            answer = self._peloton.outputs.read(self._job, wanted)
            yield from answer.outputs
            if not answer.HasField("next"):
                return
            wanted = wanted._replace(first=answer.next)

    def _give(self, found: Any) -> None:
        if found.missing:
            self._lost(found.missing)
            return
        files = ((file.name, self._pieces(found, file)) for file in found.files)
        try:
            self._sink.take(found, files)
        except NotFound as error:  # it was removed meanwhile
            self._lost(str(error))

    def _pieces(self, found: Any, file: Any) -> Iterator[bytes]:
        if not file.longer:
            yield file.data
            return
        # After the end it goes on where an answer broke off.
        read = self._peloton.tasks.follow if found.state in OVER else self._peloton.tasks.logs
        try:
            yield from read(self._job, found.instance, run=found.run, filename=file.name)
        except NotFound as error:
            if error.kind == REMOVED:
                raise
            return  # it has no such file

    def _lost(self, why: str) -> None:
        self.missing += 1
        self.why = self.why or why


def write(out: BinaryIO, pieces: Pieces, *, tag: str) -> None:
    """Write whole lines, so that the outputs of two instances never share one."""
    prefix, in_line, wrote = tag.encode(), False, False
    for piece in pieces:
        if not piece:
            continue
        wrote, ends = True, piece.endswith(b"\n")
        if prefix:
            inner = piece[:-1] if ends else piece
            text = inner.replace(b"\n", b"\n" + prefix)
            piece = (b"" if in_line else prefix) + text + (b"\n" if ends else b"")
        out.write(piece)
        in_line = not ends
    if in_line:
        out.write(b"\n")
    if wrote:
        out.flush()


def tail(data: bytes) -> list[str]:
    """Return the last lines, as text."""
    text = data[-TAIL_BYTES:].decode("utf-8", errors="backslashreplace")
    return text.rstrip().splitlines()[-TAIL_LINES:]
