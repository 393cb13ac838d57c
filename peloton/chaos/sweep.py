"""Sweeps seeds: one storm for each, over a simulated cluster, and the sums of all.

Turns seeds into figures and failures, each with the command that replays it. The seeds are a range,
or those from a random one on until a time is over. No seed is retried or skipped: one that fails
makes the sweep fail.

    python -m peloton.chaos.sweep --seeds 100 --jobs 2
    python -m peloton.chaos.sweep --minutes 3 --jobs 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations, count
from typing import NamedTuple

from peloton.chaos.cluster.branches import BRANCHES
from peloton.chaos.cluster.faults import ALL_FAULTS
from peloton.chaos.cluster.storm import Played, StormFailed, draw, play
from peloton.chaos.seeds import fresh_seed, in_time, of_each

TEXT_MAX = 500
PAIRS_SHOWN = 20


class Sometimes:
    """The branches that should be reached at times, and how many storms reached each.

    A sweep that reaches nothing rare proves little. Nothing that runs in a storm may read it.
    """

    def __init__(self, branches: Mapping[str, str]) -> None:
        self.branches = dict(branches)
        self.reached: Counter[str] = Counter()

    def reach(self, name: str, times: int = 1) -> None:
        """Count a branch that was reached. Raises `KeyError` for a name that was not declared."""
        if name not in self.branches:
            raise KeyError(f"no branch {name!r} was declared")
        if times:
            self.reached[name] += times

    def missing(self) -> list[str]:
        """Return the branches that were never reached."""
        return [name for name in self.branches if not self.reached[name]]


class Swept(NamedTuple):
    """The result of one seed."""

    seed: int
    played: Played | None
    failure: str = ""


class Sums(NamedTuple):
    """The sums of all seeds."""

    sometimes: Sometimes
    struck: Counter[str]
    storms: Counter[str]  # in which a fault struck
    pairs: Counter[tuple[str, str]]  # in which two of them did
    failures: list[Swept]
    figures: Counter[str]


def sweep_one(seed: int, *, outside: bool = False) -> Swept:
    """Play one storm."""
    try:
        return Swept(seed, play(draw(seed, outside=outside)))
    except StormFailed as failed:
        return Swept(seed, None, str(failed)[:TEXT_MAX])


def sweep(seeds: Iterable[int], *, jobs: int, outside: bool = False) -> Iterator[Swept]:
    """Yield the results of all seeds, in order."""
    return of_each(partial(sweep_one, outside=outside), seeds, jobs=jobs)


def nothing() -> Sums:
    """Return the sums before the first seed."""
    return Sums(Sometimes(BRANCHES), Counter(), Counter(), Counter(), [], Counter())


def add(
    sums: Sums, results: Iterator[Swept], *, trace_hash: bool = False, options: str = ""
) -> None:
    """Add results; failures are printed at once, since a sweep of thousands takes long."""
    for swept in results:
        sums.figures["seeds"] += 1
        played = swept.played
        if trace_hash:
            print(swept.seed, played.trace if played else "failed", flush=True)
        if played is None:
            sums.failures.append(swept)
            print(f"FAILED {swept.failure}\n  script/replay {swept.seed}{options}", flush=True)
            continue
        sums.struck.update(played.struck)
        struck = sorted(name for name, times in played.struck.items() if times)
        sums.storms.update(struck)
        sums.pairs.update(combinations(struck, 2))
        sums.figures["operations"] += played.operations
        sums.figures["steps"] += played.steps
        sums.figures["virtual s"] += int(played.elapsed_s)
        sums.figures["histories"] += 1
        sums.figures["calm s, at most"] = max(sums.figures["calm s, at most"], int(played.calm_s))
        for name in played.reached:
            sums.sometimes.reach(name)


def report(sums: Sums, *, took_s: float, options: str = "") -> None:
    """Print the sums for people."""
    figures = sums.figures
    print("\nfaults: storms it struck in, times it struck")
    for name, fault in sorted(
        ALL_FAULTS.items(), key=lambda item: (int(item[1].number[1:]), item[0])
    ):
        print(f"  {fault.number:4} {name:26} {sums.storms[name]:6} {sums.struck[name]:8}")
    report_pairs(sums)
    missing = sums.sometimes.missing()
    reached = len(sums.sometimes.branches) - len(missing)
    print(f"\nbranches reached: {reached} of {len(sums.sometimes.branches)}")
    for name in missing:
        print(f"  never: {name}: {sums.sometimes.branches[name]}")
    print(
        f"\n{figures['seeds']} seeds in {took_s:.1f} s ({figures['seeds'] / took_s:.2f}/s), "
        f"{figures['virtual s'] / 3600:.1f} h of virtual time, {figures['steps']} steps"
    )
    print(
        f"{figures['operations']} operations, {figures['histories']} histories checked, "
        f"longest time to all goals after a storm {figures['calm s, at most']} s"
    )
    for swept in sums.failures:
        print(f"  script/replay {swept.seed}{options}    {swept.failure.splitlines()[0][:120]}")


def report_pairs(sums: Sums) -> None:
    """Print how many pairs of faults struck in one storm, and some of those that never did."""
    every = [*combinations(sorted(ALL_FAULTS), 2)]
    never = [pair for pair in every if not sums.pairs[pair]]
    print(f"\npairs of faults that struck in one storm: {len(every) - len(never)} of {len(every)}")
    for one, other in never[:PAIRS_SHOWN]:
        print(f"  never: {one}, {other}")
    if len(never) > PAIRS_SHOWN:
        print(f"  and {len(never) - PAIRS_SHOWN} more")


def seeds_of(options: argparse.Namespace) -> tuple[int, Iterable[int]]:
    """Return the first seed, and all that are requested."""
    first: int | None = options.first_seed
    if options.minutes is None:
        first = first or 0
        return first, range(first, first + (100 if options.seeds is None else options.seeds))
    if first is None:
        first = fresh_seed()
    some = count(first) if options.seeds is None else range(first, first + options.seeds)
    return first, in_time(options.minutes * 60, some)


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="script/sweep", description="Storms, one for each seed.")
    parser.add_argument("--seeds", type=int, help="how many; 100 if no time is given")
    parser.add_argument("--minutes", type=float, help="draw no seed after so long")
    parser.add_argument(
        "--first-seed", type=int, metavar="SEED",
        help="the others follow it; a random one if a time is given, else 0",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--trace-hash", action="store_true", help="print the trace hash of each seed"
    )
    parser.add_argument(
        "--agents",
        action="store_true",
        help="each over machines that exist once, with the faults of a Mesos cluster",
    )
    options = parser.parse_args()
    first, seeds = seeds_of(options)
    more = " --agents" if options.agents else ""
    begun_s = time.perf_counter()
    sums = nothing()
    if options.minutes:
        print(f"seeds from {first} on, for {options.minutes:g} minutes", flush=True)
    try:
        results = sweep(seeds, jobs=options.jobs, outside=options.agents)
        add(sums, results, trace_hash=options.trace_hash, options=more)
    except KeyboardInterrupt:
        print("interrupted: these are the results until now")
    report(sums, took_s=time.perf_counter() - begun_s, options=more)
    print(f"{len(sums.failures)} failures, {sums.figures['seeds']} seeds from {first} on")
    return 1 if sums.failures or not sums.figures["seeds"] else 0


if __name__ == "__main__":
    sys.exit(main())
