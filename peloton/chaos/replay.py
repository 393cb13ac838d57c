"""Replays one storm and prints its story, line by line, so that a person can follow why.

Turns a seed or a file into lines: when, which daemon, which shard, which actor, the cause, the
facts and the reason; and between them the faults.

    python -m peloton.chaos.replay 17
    python -m peloton.chaos.replay 17 --shrink small.json
    python -m peloton.chaos.replay small.json --only job/
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.chaos.cluster.storm import ClusterScenario, StormFailed, StormRun, draw, shrink
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.entities.records import SHARD_KEY
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scenario import BAD_SCENARIO, load_scenario, save
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key

FACT_CHARS_MAX = 160
"""Facts are printed up to this length; the journal has all of them."""


class ReplayLine(NamedTuple):
    """An event, and the entity that it is about."""

    at_s: float
    key: str
    text: str


class Recorder:
    """Records the frames of one storm run."""

    def __init__(self, stage: StormRun) -> None:
        self.stage = stage
        self.lines: list[ReplayLine] = []
        stage.checks.core.on_frame.append(self.record)

    def record(self, frame: DecodedFrame) -> None:
        """Record a committed frame."""
        world = self.stage.cluster.world
        owner = _owner(world, frame.shard)
        for entry in frame.entries:
            where = f"{owner:4} {frame.shard.group}-{frame.shard.number}@{frame.position}"
            self.lines.append(ReplayLine(world.elapsed_s, entry.key, f"{where:18} {_text(entry)}"))

    def story(self, only: str | None) -> list[ReplayLine]:
        """Return all lines by time: faults, requests, and the actors selected by `only`."""
        storm = self.stage.storm
        struck = [ReplayLine(at, "", f"--- {text}") for at, text in storm.log]
        requests = [
            ReplayLine(
                each.operation.begun_s - storm.world.now + storm.world.elapsed_s,
                each.operation.job,
                f"client {each.operation!r}, {each.operation.tries} tries",
            )
            for each in self.stage.cluster.clients.requests
        ]
        wanted = [
            line
            for line in (*struck, *requests, *self.lines)
            if not line.key or self._is_involved(line.key, only)
        ]
        return sorted(wanted, key=lambda line: line.at_s)

    def _is_involved(self, key: str, only: str | None) -> bool:
        if only is not None:
            return only in key
        jobs = self.unfinished()
        return not jobs or any(job.partition("/")[2] in key for job in jobs)

    def unfinished(self) -> list[Key]:
        """Return the jobs that have not reached their goal: the story shows their actors."""
        jobs = self.stage.cluster.world.cells("job")
        return [
            key
            for key, job in jobs.items()
            if job.spec is None or job.state not in TERMINAL_JOB_STATES
        ]


def _owner(world: World, shard: ShardId) -> str:
    """Return the daemon that has the shard open under the highest epoch."""
    epochs = {name: each.shards()[shard].epoch for name, each in world.daemons.items()
              if shard in each.shards()}  # fmt: skip
    return max(epochs, key=lambda name: epochs[name], default="-")


def _text(entry: Entry) -> str:
    facts = ", ".join(_brief(fact) for fact in entry.facts)
    if entry.key == SHARD_KEY:
        return f"the shard: {facts}"
    members = f" {entry.members:b}" if entry.members else ""
    because = f" because {entry.because}" if entry.because else ""
    return f"{entry.key}{members} <- {entry.cause}: {facts}{because}"


def _brief(fact: Any) -> str:
    text = repr(fact)
    return text if len(text) <= FACT_CHARS_MAX else f"{text[:FACT_CHARS_MAX]}..."


def head(scenario: ClusterScenario) -> str:
    """Return the size of the cluster, its limits and its faults, in one line."""
    return (
        f"seed {scenario.seed}: {scenario.daemons} daemons, {scenario.hosts} hosts, "
        f"shards {scenario.sizes}, "
        f"{'one cluster of agents, ' if scenario.outside else ''}"
        f"checkpoints from {scenario.checkpoint_bytes_min} bytes, limits {scenario.limits}, "
        f"services up to {scenario.furnish_s_max} s late, storm {scenario.storm_s} s, "
        f"faults {scenario.faults}, {len(scenario.actions)} actions"
    )


def replay(scenario: ClusterScenario, *, only: str | None) -> StormFailed | None:
    """Play the scenario and print its story; return the failure, if there is one."""
    stage = StormRun(scenario)
    recorder = Recorder(stage)
    failed: StormFailed | None = None
    print(head(scenario))
    try:
        stage.play()
    except StormFailed as error:
        failed = error
    for line in recorder.story(only):
        print(f"{line.at_s:9.3f} {line.text}")
    print(f"FAILED {failed}" if failed is not None else "nothing was wrong")
    for key in recorder.unfinished() if failed is not None else ():
        print(f"  not at its goal: {key}")
    return failed


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="script/replay", description="Replay one storm and print its story."
    )
    parser.add_argument("scenario", help="a seed, or a file that --shrink wrote")
    parser.add_argument("--only", help="only actors whose key contains this")
    parser.add_argument(
        "--shrink", type=Path, help="write the smallest scenario that fails in the same way"
    )
    parser.add_argument(
        "--agents", action="store_true", help="as the same option of script/sweep, for a seed"
    )
    options = parser.parse_args()
    is_seed = options.scenario.isdigit()
    try:
        if is_seed:
            scenario = draw(int(options.scenario), outside=options.agents)
        else:
            scenario = load_scenario(ClusterScenario, Path(options.scenario))
    except OSError as error:
        parser.error(f"{options.scenario}: {error.strerror}")
    except BAD_SCENARIO as error:
        parser.error(f"{options.scenario}: no scenario of a storm: {error}")
    failed = replay(scenario, only=options.only)
    if failed is not None and options.shrink is not None:
        small = shrink(scenario, failed.sort)
        save(small, options.shrink)
        print(f"{options.shrink}: {head(small)}")
    return 1 if failed is not None else 0


if __name__ == "__main__":
    sys.exit(main())
