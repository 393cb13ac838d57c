"""Runs every long search, one after the other, and prints one table: `script/nightly`.

Turns rows (a name and a command) into logs, one file each, and a table of what came of them. A row
that fails does not stop those after it. Each row is a command that a person can type as well.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".nightly"
TOLD_COLUMNS_MAX = 80
ROW_S_MAX = 6 * 3600.0
"""Against a search that hangs: it has failed then, and the others go on."""
INTERRUPTED = 130
"""Of a search that a person has ended; those after it are not begun."""


class Row(NamedTuple):
    """One search. Its command ends with 0 where all is well."""

    name: str
    command: tuple[str, ...]


def rows(*, storm_minutes: int, nemesis_minutes: int) -> list[Row]:
    """All of them; those with a time budget draw fresh seeds, and their logs name them."""
    storm, agents = str(storm_minutes), str(max(1, storm_minutes // 3))
    nemesis = str(nemesis_minutes)
    keeper = "tests/backends/keeper/test_bench.py"
    kinds = [extension_storms(name) for name in ("lease_lock", "workflow", "autoscaler")]
    return [
        Row("suite", ("script/test", "--slow", "--nightly", f"--ignore={keeper}")),
        Row("storms", ("script/sweep", "--minutes", storm, "--jobs", "2")),
        Row("storms, agents", ("script/sweep", "--agents", "--minutes", agents, "--jobs", "2")),
        *kinds,
        Row("crash points", ("script/points",)),
        Row("crash points, workflows", ("script/points", "--rolling")),
        Row("power cuts", ("script/points", "--power")),
        Row("power cuts, workflows", ("script/points", "--rolling", "--power")),
        Row("second deaths", ("script/points", "--seconds", "5")),
        Row("lost messages", ("script/points", "--nemeses")),
        Row("planted faults", ("script/planted",)),
        Row("mutants", ("script/mutants",)),
        Row("keeper", ("script/test", keeper, "--slow", "--nightly", "-s")),
        Row("model", ("script/model",)),
        Row("nemesis", ("script/nemesis", "--minutes", nemesis, "--seed", fresh())),
    ]


def extension_storms(name: str) -> Row:
    """A thousand storms over the kinds of an example, as its author would play them."""
    where = ("--path", f"examples/extensions/{name}", "--kinds", f"{name}.storms")
    return Row(f"storms, {name}", (".venv/bin/peloton", "chaos", "run", *where, "--seeds", "1000"))


def fresh() -> str:
    """A seed of this night."""
    return time.strftime("%Y%m%d")


class Outcome(NamedTuple):
    """What came of a row: its exit code, and the last line that it printed."""

    row: Row
    code: int
    seconds: float
    told: str


def run(row: Row, log: Path) -> Outcome:
    """Run one to its end, with all that it prints in its log."""
    begun_s = time.monotonic()
    with log.open("wb") as file:
        # Under a subreaper: what hangs is ended with all that it started.
        words = [sys.executable, "-m", "tests.outlived", *row.command]
        process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        try:
            code = process.wait(ROW_S_MAX)
        except subprocess.TimeoutExpired:
            process.terminate()
            code = process.wait()
        except KeyboardInterrupt:  # SIGTERM, too: `main` makes it one
            process.terminate()
            process.wait()
            code = INTERRUPTED
    lines = log.read_text(errors="replace").split("\n")
    told = next((line for line in reversed(lines) if line.strip()), "")
    return Outcome(row, code, time.monotonic() - begun_s, told.strip("= "))


def line_of(one: Outcome) -> str:
    """A row of the table."""
    verdict = "well" if one.code == 0 else f"FAILED ({one.code})"
    return f"{one.row.name:24} {verdict:12} {one.seconds:7.0f} s  {one.told[:TOLD_COLUMNS_MAX]}"


def play(chosen: Sequence[Row], folder: Path, *, out: TextIO) -> int:
    """Run them, print each line when it is known, and the table at the end; how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Outcome] = []
    for row in chosen:
        print(f"==> {row.name}: {' '.join(row.command)}", file=out, flush=True)
        one = run(row, folder / f"{row.name.replace(', ', '-').replace(' ', '-')}.log")
        found.append(one)
        print(f"    {line_of(one)}", file=out, flush=True)
        if one.code == INTERRUPTED:
            break
    failed = sum(one.code != 0 for one in found)
    print(*("", *map(line_of, found), ""), sep="\n", file=out)
    print(f"{len(found)} searches, {failed} failed; logs in {folder}", file=out, flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 if a search failed, 2 if none was chosen."""
    parser = argparse.ArgumentParser(prog="script/nightly", description="Every long search.")
    parser.add_argument("--only", metavar="TEXT", default="", help="those with this in their name")
    parser.add_argument("--storm-minutes", type=int, default=30, metavar="N")
    parser.add_argument("--nemesis-minutes", type=int, default=30, metavar="N")
    parser.add_argument("--list", action="store_true", help="only print the commands")
    asked = parser.parse_args(arguments)
    every = rows(storm_minutes=asked.storm_minutes, nemesis_minutes=asked.nemesis_minutes)
    chosen = [row for row in every if asked.only in row.name]
    if not chosen:
        print(f"no search has {asked.only!r} in its name", file=sys.stderr)
        return 2
    if asked.list:
        print(*(f"{row.name:24} {' '.join(row.command)}" for row in chosen), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return 1 if play(chosen, LOGS / time.strftime("%Y-%m-%d-%H%M%S"), out=sys.stdout) else 0


if __name__ == "__main__":
    sys.exit(main())
