"""Plants the faults of the lists beside this module, one at a time, and runs what must notice them.

Turns each entry of `*.toml` into a verdict: killed by its tests, survived, does not apply, or gone
with the line that it changed. A line that is gone is only reported: its author decides whether a
promise still depends on it. A fault is planted in a copy of the tree, never in the tree itself, so
several run at a time and an interrupted run leaves nothing behind but results, from which the next
one continues.

An entry has a `name`, the `file`, the text `old` that occurs there exactly once, the text `new`
that replaces it, the promise that it `breaks`, and in `killed_by` the tests (ids of pytest, or
`storms FIRST-LAST`) of which at least one has to fail.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / ".mutants" / "results.jsonl"
TIME_LIMIT_S = 120.0
KILLED, SURVIVED, BROKEN_KILLER, NOT_APPLICABLE, GONE = (
    "killed", "survived", "killer does not run", "does not apply", "gone: drop the entry"
)  # fmt: skip
WELL = (KILLED, GONE)
STORMS = re.compile(r"storms (\d+)-(\d+)")
NEAREST = {
    "peloton/actors/": ("tests/actors",),
    "peloton/placement/": ("tests/placement",),
    "peloton/runtime/core/": ("tests/core", "tests/model"),
    "peloton/runtime/shells/": ("tests/shells",),
    "peloton/runtime/adapters/": ("tests/contracts", "tests/adapters"),
    "peloton/backends/": ("tests/backends", "tests/contracts/test_backend.py"),
    "peloton/gateway/": ("tests/gateway",),
    "peloton/chaos/cluster/": ("tests/worlds",),
}
# Of pytest: 0 all passed, 1 some failed, 2 not even imported; above are errors of the call.
# A fault that keeps what a test waits for from coming is noticed when its patience ends.
# Bytecode that is not written cannot be taken for that of another fault.
BRIEF = {"PELOTON_TEST_DEADLINE_S": "15", "PYTHONDONTWRITEBYTECODE": "1"}
PASSED_STATUS, NOTICED_STATUSES = 0, (1, 2)
LEFT_OUT = (".git", ".venv", ".*_cache", ".hypothesis", ".mutants", ".nightly")
"""Of the copies."""


class Mutant(NamedTuple):
    """One planted fault."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    killed_by: tuple[str, ...]

    def problem(self, root: Path = ROOT) -> tuple[str, str] | None:
        """The verdict on what cannot be planted, and the reason; none if it can."""
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if self.old not in text:
            return GONE, f"its old text is no longer in {self.file}"
        if (count := text.count(self.old)) != 1:
            return NOT_APPLICABLE, f"its old text occurs {count} times in {self.file}"
        try:
            compile(text.replace(self.old, self.new), self.file, "exec")
        except SyntaxError as error:
            return NOT_APPLICABLE, f"the changed {self.file} does not compile: {error}"
        return None


class Verdict(NamedTuple):
    """What became of one mutant; `by` is the first test that failed, or why there is no verdict."""

    name: str
    verdict: str
    by: str = ""
    seconds: float = 0.0


def mutants(folder: Path = Path(__file__).parent) -> list[Mutant]:
    """All lists, in the order of their names."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            killed_by = tuple(entry.pop("killed_by"))
            found.append(Mutant(**entry, killed_by=killed_by))
    return found


def defined(killer: str, root: Path = ROOT) -> bool:
    """Whether the test is there; its parameters are known to a collection only."""
    if STORMS.fullmatch(killer):
        return True
    file, *names = killer.partition("[")[0].split("::")
    path = root / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return bool(names) and all(f"def {name}(" in text or f"class {name}" in text for name in names)


def missing_killers(chosen: Sequence[Mutant]) -> list[str]:
    """A line for each test that an entry names and that is not there."""
    return [
        f"{one.name}: there is no {killer}: name the test that shows it now"
        for one in chosen
        for killer in one.killed_by
        if not defined(killer)
    ]


def nearest(file: str) -> tuple[str, ...]:
    """The folders of tests next to a file."""
    return next(tests for start, tests in NEAREST.items() if file.startswith(start))


class Tree:
    """A copy of the repository in which one mutant at a time is planted."""

    def __init__(self, folder: Path, source: Path = ROOT) -> None:
        self.root, self._source = folder, source
        shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        (folder / ".venv").symlink_to(ROOT / ".venv")
        self._stamp = 1_000_000_000

    def plant(self, mutant: Mutant) -> None:
        """Change the file; its time is one that it never had, or old bytecode would be loaded."""
        path = self.root / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        self._stamp += 1
        os.utime(path, (self._stamp, self._stamp))

    def restore(self, mutant: Mutant) -> None:
        """The file as it is in the repository."""
        shutil.copy2(self._source / mutant.file, self.root / mutant.file)

    def run(self, killers: Sequence[str], limit_s: float) -> tuple[str, str]:
        """A verdict on the tree as it is, and the test that failed first."""
        ends_s = time.monotonic() + limit_s
        for command in commands(killers):
            status, output = self._call(command, ends_s - time.monotonic())
            if status is None:
                return KILLED, f"no end within {limit_s:.0f} s"
            if status in NOTICED_STATUSES:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+.*?)(?: - .*)?$", output, re.MULTILINE)
                return KILLED, failed.group(1) if failed else command[-1]
            if status != PASSED_STATUS:
                return BROKEN_KILLER, " ".join(output.split())[-200:]
        return SURVIVED, ""

    def _call(self, command: Sequence[str], limit_s: float) -> tuple[int | None, str]:
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=self.root, stdout=output, stderr=output,
                env=os.environ | BRIEF | {"PYTHONPATH": str(self.root)},
                start_new_session=True,
            )  # fmt: skip
            try:
                status: int | None = process.wait(max(0.1, limit_s))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
            output.seek(0)
            return status, output.read()


def commands(killers: Sequence[str]) -> Iterator[list[str]]:
    """Arguments of Python: the tests in one process, and each range of storms in one."""
    tests = [one for one in killers if not STORMS.fullmatch(one)]
    if tests:
        flags = ["-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
        if any("::" in one for one in tests):  # named tests run, whatever their marks
            flags += ["--slow", "--nightly"]
        yield ["-m", "pytest", *flags, *tests]
    for one in killers:
        if seeds := STORMS.fullmatch(one):
            first, last = int(seeds.group(1)), int(seeds.group(2))
            count = str(last - first + 1)
            yield ["-m", "peloton.chaos.sweep", "--first-seed", str(first), "--seeds", count]


class Results:
    """Verdicts on disk, each under a digest of all that it depends on and that is near."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._known: dict[str, Verdict] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                digest, *verdict = json.loads(line)
                self._known[digest] = Verdict(*verdict)

    def find(self, mutant: Mutant, killers: Sequence[str]) -> Verdict | None:
        """What was found of it before; None if anything of it has changed."""
        return self._known.get(_digest(mutant, killers))

    def note(self, mutant: Mutant, killers: Sequence[str], *, verdict: Verdict) -> None:
        """Keep a verdict for the next run."""
        with self._lock:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([_digest(mutant, killers), *verdict]) + "\n")


def _digest(mutant: Mutant, killers: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps([mutant, killers]).encode())
    for name in dict.fromkeys([mutant.file, *(one.partition("::")[0] for one in killers)]):
        if (ROOT / name).is_file():
            digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


class Run:
    """One call of the command: which mutants, with which tests, in how many copies."""

    def __init__(self, settings: argparse.Namespace) -> None:
        self._settings = settings
        self._results = Results(RESULTS)
        self._trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()

    def killers(self, mutant: Mutant) -> tuple[str, ...]:
        """What has to notice it, as far as it is there."""
        if self._settings.tests:
            return tuple(self._settings.tests)
        there = tuple(filter(defined, mutant.killed_by))
        return nearest(mutant.file) if self._settings.all_tests else there

    def judge(self, mutant: Mutant) -> Verdict:
        """Plant it and run its tests, or take what an earlier run has found."""
        if problem := mutant.problem():
            return Verdict(mutant.name, *problem)
        killers = self.killers(mutant)
        if not killers:
            return Verdict(mutant.name, BROKEN_KILLER, "no test that it names is there")
        known = None if self._settings.again else self._results.find(mutant, killers)
        if known is not None:
            return known
        tree = self._trees.get()
        begun_s = time.monotonic()
        try:
            tree.plant(mutant)
            verdict, by = tree.run(killers, self._settings.limit)
        finally:
            tree.restore(mutant)
            self._trees.put(tree)
        found = Verdict(mutant.name, verdict, by, round(time.monotonic() - begun_s, 1))
        self._results.note(mutant, killers, verdict=found)
        return found

    def all(self, chosen: Sequence[Mutant]) -> list[Verdict]:
        """Every verdict, printed as it is found."""
        found = []
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            for number in range(self._settings.jobs):
                self._trees.put(Tree(Path(folder).resolve() / f"copy{number}"))
            with ThreadPoolExecutor(self._settings.jobs) as pool:
                for verdict in pool.map(self.judge, chosen):
                    found.append(verdict)
                    shown = f"{verdict.verdict:20} {verdict.seconds:6.1f} s"
                    print(f"{verdict.name:44} {shown}  {verdict.by}".rstrip(), flush=True)
        return found

    def healthy(self, chosen: Sequence[Mutant]) -> str:
        """Which test fails without any fault: what it kills would mean nothing."""
        known = [self._results.find(one, self.killers(one)) is not None for one in chosen]
        left = [
            one for one, old in zip(chosen, known, strict=True) if not old and not one.problem()
        ]
        killers = [*dict.fromkeys(k for one in left for k in self.killers(one))]
        if not killers or self._settings.all_tests or self._settings.tests:
            return ""
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            tree = Tree(Path(folder).resolve() / "copy")
            verdict, by = tree.run(killers, self._settings.limit + 10.0 * len(killers))
        return "" if verdict == SURVIVED else f"{verdict} without any fault: {by}"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="script/mutants", description="Plants small faults, and runs what must notice each."
    )
    parser.add_argument("--select", default="", metavar="TEXT",
                        help="only those with this text in their name or file")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="so many at a time")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT_S, metavar="S",
                        help="a test that takes longer has noticed, in seconds")  # fmt: skip
    parser.add_argument(
        "--all-tests",
        action="store_true",
        help="the folders of tests next to the file, instead of those named",
    )
    parser.add_argument("--tests", nargs="+", metavar="TEST",
                        help="these tests, instead of those named")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="also what has a result already")
    parser.add_argument("--list", action="store_true", help="only show the list")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a fault survives or an entry names no test, 2 if there is none such."""
    settings = options(arguments)
    chosen = [one for one in mutants() if settings.select in f"{one.file} {one.name}"]
    if not chosen:
        print(f"no mutant has {settings.select!r} in its name or file", file=sys.stderr)
        return 2
    missing = missing_killers(chosen)
    print(*missing, sep="\n", end="\n" if missing else "", file=sys.stderr)
    if settings.list:
        for one in chosen:
            print(one.name, f"{one.file}: {one.breaks}", *one.killed_by, sep="\n    ")
        return 0
    run = Run(settings)
    if trouble := run.healthy(chosen):
        print(trouble, file=sys.stderr)
        return 1
    found = run.all(chosen)
    print(summary(found))
    return 1 if missing or any(one.verdict not in WELL for one in found) else 0


def summary(found: Sequence[Verdict]) -> str:
    """The names of all that need a hand, by verdict, and in the last line the counts."""
    names: dict[str, list[str]] = {}
    for one in found:
        names.setdefault(one.verdict, []).append(one.name)
    killed = len(names.pop(KILLED, ()))
    lists = [line for verdict, of in names.items() for line in (f"{verdict}:", *indented(of))]
    counts = [f"{len(of)} {verdict}" for verdict, of in names.items()]
    return "\n".join((*lists, ", ".join((f"{killed} of {len(found)} killed", *counts))))


def indented(lines: Sequence[str]) -> list[str]:
    """Below a heading."""
    return [f"    {line}" for line in lines]


if __name__ == "__main__":
    sys.exit(main())
