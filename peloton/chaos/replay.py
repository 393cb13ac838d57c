"""Plays one storm again and tells its story, line by line, so that a person can follow why.

Turns a seed or a file into lines: when, which daemon, which shard, which actor, the cause, the
facts and the reason; and between them what struck. It must not change what happens: it only
listens.

    python -m peloton.chaos.replay 17
    python -m peloton.chaos.replay 17 --shrink small.json
    python -m peloton.chaos.replay small.json --only job/
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

from peloton.actors.job.totals import TERMINAL_JOB_STATES
from peloton.chaos.cluster.storm import ClusterPlan, StormFailed, StormRun, draw, shrink
from peloton.runtime.core.codec import Entry
from peloton.runtime.core.records import SHARD_KEY
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.plan import load, save
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key

TELLING = 160
"""Facts are told at this length; their whole is in the journal."""


class ReplayLine(NamedTuple):
    """One thing that happened, and whom it is about."""

    at_s: float
    key: str
    text: str


class Teller:
    """Listens to a stage."""

    def __init__(self, stage: StormRun) -> None:
        self.stage = stage
        self.lines: list[ReplayLine] = []
        stage.checks.core.hearers.append(self.hear)

    def hear(self, frame: DecodedFrame) -> None:
        """A frame that is committed."""
        world = self.stage.cluster.world
        owner = _owner(world, frame.shard)
        for entry in frame.entries:
            where = f"{owner:4} {frame.shard.group}-{frame.shard.number}@{frame.position}"
            self.lines.append(ReplayLine(world.elapsed_s, entry.key, f"{where:18} {_told(entry)}"))

    def story(self, only: str | None) -> list[ReplayLine]:
        """All of it in the order of time; what struck, and the actors asked for."""
        storm = self.stage.storm
        struck = [ReplayLine(at, "", f"--- {text}") for at, text in storm.log]
        said = [
            ReplayLine(
                each.operation.begun_s - storm.world.now + storm.world.elapsed_s,
                each.operation.job,
                f"client {each.operation!r}, said {each.operation.tries} times",
            )
            for each in self.stage.cluster.clients.said
        ]
        wanted = [
            line
            for line in (*struck, *said, *self.lines)
            if not line.key or self._is_involved(line.key, only)
        ]
        return sorted(wanted, key=lambda line: line.at_s)

    def _is_involved(self, key: str, only: str | None) -> bool:
        if only is not None:
            return only in key
        jobs = self.unfinished()
        return not jobs or any(job.partition("/")[2] in key for job in jobs)

    def unfinished(self) -> list[Key]:
        """Jobs that have not reached their goal: their actors are those involved."""
        jobs = self.stage.cluster.world.cells("job")
        return [
            key
            for key, job in jobs.items()
            if job.spec is None or job.state not in TERMINAL_JOB_STATES
        ]


def _owner(world: World, shard: ShardId) -> str:
    """Who has the shard open under the highest epoch."""
    epochs = {name: each.shards()[shard].epoch for name, each in world.daemons.items()
              if shard in each.shards()}  # fmt: skip
    return max(epochs, key=lambda name: epochs[name], default="-")


def _told(entry: Entry) -> str:
    facts = ", ".join(_brief(fact) for fact in entry.facts)
    if entry.key == SHARD_KEY:
        return f"the shard: {facts}"
    members = f" {entry.members:b}" if entry.members else ""
    because = f" because {entry.because}" if entry.because else ""
    return f"{entry.key}{members} <- {entry.cause}: {facts}{because}"


def _brief(fact: Any) -> str:
    text = repr(fact)
    return text if len(text) <= TELLING else f"{text[:TELLING]}..."


def head(plan: ClusterPlan) -> str:
    """What there is, and which faults."""
    return (
        f"seed {plan.seed}: {plan.daemons} daemons, {plan.hosts} hosts, shards {plan.sizes}, "
        f"checkpoints from {plan.checkpoint_bytes_min} bytes, limits {plan.limits}, "
        f"machines up to {plan.furnish_s_max} s late, storm {plan.storm_s} s, "
        f"faults {plan.faults}, {len(plan.actions)} deeds"
    )


def replay(plan: ClusterPlan, *, only: str | None) -> StormFailed | None:
    """Play and tell; the failure, if there is one."""
    stage = StormRun(plan)
    teller = Teller(stage)
    failed: StormFailed | None = None
    print(head(plan))
    try:
        stage.play()
    except StormFailed as error:
        failed = error
    for line in teller.story(only):
        print(f"{line.at_s:9.3f} {line.text}")
    print(f"FAILED {failed}" if failed is not None else "nothing was wrong")
    for key in teller.unfinished() if failed is not None else ():
        print(f"  not at its goal: {key}")
    return failed


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="script/replay", description="One storm, told.")
    parser.add_argument("plan", help="a seed, or a file that --shrink wrote")
    parser.add_argument("--only", help="actors whose key has this in it")
    parser.add_argument("--shrink", type=Path, help="write the smallest plan that fails alike")
    options = parser.parse_args()
    is_seed = options.plan.isdigit()
    plan = draw(int(options.plan)) if is_seed else load(ClusterPlan, Path(options.plan))
    failed = replay(plan, only=options.only)
    if failed is not None and options.shrink is not None:
        small = shrink(plan, failed.sort)
        save(small, options.shrink)
        print(f"{options.shrink}: {head(small)}")
    return 1 if failed is not None else 0


if __name__ == "__main__":
    sys.exit(main())
