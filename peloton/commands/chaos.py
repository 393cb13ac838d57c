"""`peloton chaos`: storms over the kinds of an extension, in this process, in virtual time.

Turns seeds into one line for each failure, with the file that replays it. Nothing outside of the
process is touched.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from peloton.commands.schema import USAGE, WRONG, Decorated, fail

if TYPE_CHECKING:
    from peloton.chaos.kinds.declaring import KindStorms
    from peloton.runtime.simulation.scenario import StormScenario

SEEDS = 100
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def of_kinds(command: Decorated) -> Decorated:
    """Add the options that say which storms."""
    for option in (
        click.option(
            "--path", "folder", type=FOLDER, default=".", show_default=True, metavar="DIR",
            help="Import from there first.",
        ),
        click.option(
            "--kinds", "name", required=True, metavar="MODULE[:NAME]",
            help="The module with the storms of your kinds, or else with the kinds.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


class SeedPlayed(NamedTuple):
    """What came of one seed. `small`: the smallest scenario found that fails so, as JSON."""

    seed: int
    struck: dict[str, int]
    told: int = 0
    failure: str = ""
    sort: str = ""
    small: StormScenario | None = None


def command() -> click.Group:
    return chaos


@click.group()
def chaos() -> None:
    """Play storms of faults over the kinds of an extension, and keep those that fail."""


@chaos.command()
@of_kinds
@click.option("--seeds", type=click.IntRange(1), help=f"How many; {SEEDS} if no time is given.")
@click.option("--minutes", type=click.FloatRange(0), help="Draw no seed after so long.")
@click.option("--first-seed", type=click.IntRange(0), help="[default: a random one]")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option(
    "--save", "kept", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Write each failing storm there, made as small as it gets.",
)  # fmt: skip
def run(
    name: str,
    seeds: int | None,
    minutes: float | None,
    first_seed: int | None,
    jobs: int,
    kept: Path | None,
    folder: Path,
) -> None:
    """Play one storm for each seed.

    \b
    peloton chaos run --kinds lease_lock.storms --seeds 1000
    peloton chaos run --kinds lease_lock.storms --minutes 10 --jobs 2 --save failed
    """
    from peloton.chaos.seeds import fresh_seed, in_time, of_each

    _storms("run", name, folder=folder)
    first = fresh_seed() if first_seed is None else first_seed
    most = seeds if seeds is not None else (None if minutes else SEEDS)
    some = islice(count(first), most)
    drawn = some if minutes is None else in_time(minutes * 60, some)
    played, struck, failed = Counter[str](), Counter[str](), 0
    begun_s = time.monotonic()
    for one in of_each(partial(play_seed, name, shrink=kept is not None), drawn, jobs=jobs):
        played.update(storms=1, told=one.told)
        struck.update(name for name, times in one.struck.items() if times)
        if one.failure:
            failed += 1
            print(f"{one.failure.splitlines()[0][:200]}")
            print(f"  {_kept(one, kept, name=name)}", flush=True)
    took_s = time.monotonic() - begun_s
    print(
        f"{played['storms']} storms from seed {first} on in {took_s:.1f} s, {played['told']} "
        f"messages of clients, {len(struck)} sorts of faults: {failed} failed"
    )
    sys.exit(WRONG if failed else 0)


@chaos.command()
@of_kinds
@click.argument("storm")
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write the timeline as a page of HTML as well.",
)  # fmt: skip
def replay(name: str, storm: str, report: Path | None, folder: Path) -> None:
    """Play one storm again, by its seed or file, and print what happened.

    \b
    peloton chaos replay --kinds lease_lock.storms 17
    peloton chaos replay --kinds lease_lock.storms failed/17.json --report 17.html
    """
    from peloton.chaos.kinds.telling import as_page, timeline

    storms = _storms("replay", name, folder=folder)
    scenario = _scenario("replay", storm, storms=storms)
    entries, failure = timeline(storms, scenario)
    for entry in entries:
        print(f"{entry.at_s:9.3f} {entry.sort:6} {entry.text}")
    print(f"FAILED {failure}" if failure else "nothing was wrong")
    if report is not None:
        report.write_text(as_page(scenario, entries, failure=failure), encoding="utf-8")
    sys.exit(WRONG if failure else 0)


@chaos.command()
@of_kinds
@click.argument("storm", type=FILE)
@click.argument("test", type=click.Path(dir_okay=False, path_type=Path))
def save(name: str, storm: Path, test: Path, folder: Path) -> None:
    """Turn the file of a failing storm into a test for pytest, beside which it is copied.

    \b
    peloton chaos save --kinds lease_lock.storms failed/17.json tests/test_storm_17.py
    """
    from peloton.chaos.kinds.playing import KindStormFailed, play_kinds
    from peloton.chaos.kinds.telling import as_test

    storms = _storms("save", name, folder=folder)
    scenario, sort = _scenario("save", str(storm), storms=storms), "nothing is wrong any more"
    try:
        play_kinds(storms, scenario)
    except KindStormFailed as failed:
        sort = failed.sort
    beside = test.with_suffix(".json")
    beside.write_bytes(storm.read_bytes())
    test.write_text(as_test(scenario, beside.name, name=name, sort=sort), encoding="utf-8")
    print(f"{test} plays {beside}: {sort}")


def play_seed(name: str, seed: int, *, shrink: bool) -> SeedPlayed:
    """Play one storm; on any process."""
    from peloton.chaos.kinds.playing import (
        KindStormFailed,
        draw_kinds,
        play_kinds,
        shrink_kinds,
    )
    from peloton.chaos.kinds.telling import load_storms

    storms = load_storms(name)
    try:
        played = play_kinds(storms, draw_kinds(storms, seed))
    except KindStormFailed as failed:
        small = shrink_kinds(storms, failed) if shrink else None
        return SeedPlayed(seed, {}, 0, str(failed), failed.sort, small)
    return SeedPlayed(seed, played.struck, played.told)


def _storms(command: str, name: str, *, folder: Path) -> KindStorms:
    from peloton.chaos.kinds.telling import BadStorms, load_storms

    sys.path.insert(0, str(folder.resolve()))
    try:
        return load_storms(name)
    except BadStorms as error:
        fail(f"chaos {command}", f"--kinds: {error}", code=USAGE)


def _scenario(command: str, storm: str, *, storms: KindStorms) -> StormScenario:
    from peloton.chaos.kinds.playing import draw_kinds
    from peloton.runtime.simulation.scenario import BAD_SCENARIO, StormScenario, load_scenario

    if storm.isdigit():
        return draw_kinds(storms, int(storm))
    try:
        return load_scenario(StormScenario, Path(storm))
    except OSError as error:
        fail(f"chaos {command}", f"{storm}: {error.strerror}", code=USAGE)
    except BAD_SCENARIO as error:
        fail(f"chaos {command}", f"{storm}: no scenario of a storm: {error}", code=USAGE)


def _kept(one: SeedPlayed, folder: Path | None, *, name: str) -> str:
    """Write a failing storm, if there is a folder; return the command that replays it."""
    from peloton.runtime.simulation import scenario

    if folder is None or one.small is None:
        return f"peloton chaos replay --kinds {name} {one.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{one.seed}.json"
    scenario.save(one.small, path)
    return f"peloton chaos replay --kinds {name} {path}"
