"""The toy workload in virtual time: a death at every call of the store, in turn."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.vocabulary import Unavailable
from tests.toy import messages as w
from tests.toy.daemon import panel
from tests.toy.hooked_rows import StoreCall
from tests.toy.mortal import Fate
from tests.toy.story import COMMANDS, Story


def calls_of(seed: int) -> int:
    story = Story(seed)
    story.tell_all()
    return story.mortal.calls


def lived_through(seed: int, die_at: int) -> Story:
    story = Story(seed, die_at=die_at)
    story.tell_all()
    first = story.answers
    assert story.again() == first, "an answer that was given is not given again"
    story.check()
    return story


def test_the_workload_reaches_its_goals_and_uses_checkpoints():
    story = lived_through(1, die_at=0)
    assert story.mortal.lives == 1
    assert len(story.answers) == len(COMMANDS)
    assert any(row.floor for row in story.mortal.store.registers.values())
    assert story.mortal.store.ended


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_death_in_any_call_of_the_store_loses_nothing(seed: int):
    for die_at in range(1, calls_of(seed) + 1):
        try:
            story = lived_through(seed, die_at)
        except BaseException as error:
            error.add_note(f"seed {seed}, death in call {die_at}")
            raise
        assert story.mortal.lives == 2


def test_two_deaths_in_a_row():
    total = calls_of(4)
    for first in range(1, total, 5):
        story = Story(4)
        deaths = (first, first + 4)
        story.mortal.on_call = lambda call, at: Fate.DEATH if at in deaths else None  # noqa: B023
        story.tell_all()
        story.check()


@pytest.mark.parametrize("seed", range(20))
def test_lost_answers_and_deaths_as_they_come(seed: int):
    story = Story(seed)
    chance = random.Random(seed)

    def storm(call: StoreCall, number: int) -> Fate | None:
        drawn = chance.random()
        if number > 400:
            return None
        return Fate.LOST if drawn < 0.15 else Fate.DEATH if drawn < 0.17 else None

    story.mortal.on_call = storm
    story.tell_all()
    story.mortal.on_call = None
    assert story.again() == story.answers
    story.check()


def test_a_shard_whose_journal_is_away_is_given_up_and_taken_again():
    story = Story(5)
    mortal = story.mortal
    assert story.ask(panel("a"), w.Install(2)) == w.Done(1)
    mortal.on_call = lambda call, at: Fate.LOST if call.moves() or call.claims() else None
    future = mortal.region.ask(panel("a"), w.Switch(True))
    begun = mortal.stepper.clock.now_s
    mortal.run(lambda: not mortal.root.health()[0])
    assert "unclear" in mortal.root.health()[1][0]
    mortal.run(future.done)
    assert isinstance(future.result(), Unavailable), "nobody knows what became of it"
    assert 15 <= mortal.stepper.clock.now_s - begun <= 20
    mortal.run(lambda: mortal.stepper.clock.now_s - begun > 120)
    assert not mortal.root.exited.done(), "a store that is away is no reason to end"
    mortal.on_call = None
    assert story.ask(panel("a"), w.Switch(True)) in (w.Done(2), w.Done(3))
    mortal.run(lambda: mortal.root.health() == (True, []))


def test_a_fenced_shard_is_dropped_at_once():
    story = Story(6)
    assert story.ask(panel("a"), w.Install(2)) == w.Done(1)
    name = next(name for name, shard in story.mortal.shards().items() if shard.population.cells)
    FencedRows(story.mortal.store, process=b"another".rjust(16)).claim(name, "another")
    future = story.mortal.region.ask(panel("a"), w.Switch(True))
    story.mortal.run(future.done)
    assert isinstance(future.result(), Unavailable)
    # Alone in the world, it claims again after a pause.
    assert story.ask(panel("a"), w.Switch(True)) == w.Done(2)


def test_a_seed_is_the_same_in_every_process(root: Path):
    program = (
        "from tests.toy.story import Story\n"
        "story = Story(7, die_at=30)\n"
        "story.tell_all()\n"
        "print(story.trace())\n"
    )
    traces = set()
    for hash_seed in ("0", "1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
        run = subprocess.run(
            [sys.executable, "-c", program], cwd=root, env=env, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        traces.add(run.stdout)
    assert len(traces) == 1


def test_another_seed_takes_another_way():
    first, second = Story(1), Story(2)
    first.tell_all()
    second.tell_all()
    assert first.trace() != second.trace()
    assert first.answers == second.answers
