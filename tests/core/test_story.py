"""The toy workload in virtual time: a death at every call of the store, in turn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert any(files.register.floor for files in story.mortal.store.shards.values())
    assert any(files.ended for files in story.mortal.store.shards.values())


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
        story.mortal._on_call = lambda call, number: number in (first, first + 4)  # noqa: B023
        story.tell_all()
        story.check()


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
