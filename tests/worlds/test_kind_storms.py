"""Storms over kinds of extensions: the examples hold, faults in them are found, bad ones harm none.

More seeds are played by `peloton chaos run`, as `docs/extensions.md` says.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace as but
from itertools import count
from pathlib import Path

import autoscaler.storms
import lease_lock.storms
import pytest
import workflow.storms
from lease_lock.kind import LOCK, Acquire, Freed, Lock, Taken

from peloton.chaos.kinds import (
    KindStormFailed,
    KindStorms,
    StormCommand,
    draw_kinds,
    play_kinds,
    shrink_kinds,
)
from peloton.chaos.seeds import fresh_seed, in_time
from peloton.runtime.core.turning.supervision import DEAD_LETTERS_MAX
from peloton.runtime.simulation.drawn_values import drawn_value
from peloton.runtime.simulation.scenario import StormScenario
from peloton.runtime.vocabulary import DeadLettered, Send, key
from peloton.sdk.kit import (
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorState,
    At,
    Decision,
    TurnLimits,
)
from tests.conftest import ROOT

SHARE_OF_TIME = 0.1
SEEDS_MAX = 200
EXAMPLES = {
    "lease_lock": lease_lock.storms.STORMS,
    "workflow": workflow.storms.STORMS,
    "autoscaler": autoscaler.storms.STORMS,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_hold_in_fresh_storms(name: str, storm_seconds: float) -> None:
    storms = EXAMPLES[name]
    for seed in in_time(storm_seconds * SHARE_OF_TIME, count(fresh_seed())):
        play_kinds(storms, draw_kinds(storms, seed))


def test_a_seed_is_one_history_and_storms_without_a_command_draw_messages() -> None:
    storms = KindStorms([LOCK])
    scenario = draw_kinds(storms, 11)
    played = play_kinds(storms, scenario)
    assert played.told and played.trace == play_kinds(storms, scenario).trace


# ---- faults in a kind ----


def forgetful(lock: Lock, fact: Freed) -> Lock:
    return Lock()  # the token falls


def impatient(lock: Lock, message: Acquire, at: At) -> Decision:
    return Decision((Taken(message.holder, message.ttl_s),), because="whoever asks")


def planted(**functions: object) -> KindStorms:
    """The storms of the lock over one in which some functions are others."""
    kind = ActorKind("lock", state=Lock)
    for table in ("messages", "facts", "replies", "dues", "hooks"):
        setattr(kind, table, {**getattr(LOCK, table)})
    kind.messages |= {Acquire: functions.get("acquire", kind.messages[Acquire])}  # type: ignore[dict-item]
    kind.facts |= {Freed: functions.get("freed", kind.facts[Freed])}  # type: ignore[dict-item]
    return but(lease_lock.storms.STORMS, kinds=[kind])


def first_failure(storms: KindStorms) -> KindStormFailed:
    for seed in range(SEEDS_MAX):
        try:
            play_kinds(storms, draw_kinds(storms, seed))
        except KindStormFailed as failed:
            return failed
    raise AssertionError(f"{SEEDS_MAX} storms found nothing")


@pytest.mark.parametrize(
    ("storms", "text"),
    [
        (planted(freed=forgetful), "one token twice"),
        (planted(acquire=impatient), "two holders"),
    ],
    ids=["the token falls", "a lock is taken from its holder"],
)
def test_a_fault_in_a_kind_is_found_and_made_small(storms: KindStorms, text: str) -> None:
    failed = first_failure(storms)
    assert text in str(failed)
    small = shrink_kinds(storms, failed)
    assert len(small.actions) <= 4 and small.daemons == 1 and not small.faults
    with pytest.raises(KindStormFailed, match=text):
        play_kinds(storms, small)


# ---- a kind that is bad hurts itself alone ----


class Grown(ActorState, frozen=True):
    size: int = 0
    text: str = ""


class Raise(ActorMessage, frozen=True):
    pass


class Grow(ActorMessage, frozen=True):
    pass


class Flood(ActorMessage, frozen=True):
    number: int = 0


class Grew(ActorFact, frozen=True):
    text: str = ""


BAD = ActorKind("bad", state=Grown, limits=TurnLimits(state_bytes=4096, turn_bytes=2048, sends=10))


@BAD.decides(Raise)
def fail(state: Grown, message: Raise, at: At) -> Decision:
    raise RuntimeError("as it was made to")


@BAD.decides(Grow)
def grow(state: Grown, message: Grow, at: At) -> Decision:
    return Decision((Grew("x" * 1000),))


@BAD.decides(Flood)
def flood(state: Grown, message: Flood, at: At) -> Decision:
    """As many as are allowed, of which each has the next ones sent; or too many."""
    if message.number > 3:
        return Decision(because="enough")
    many = 11 if message.number == 3 else 5
    others = (key("bad", f"f{number}") for number in range(many))
    return Decision(sends=tuple(Send(to, Flood(message.number + 1)) for to in others))


@BAD.folds(Grew)
def grew(state: Grown, fact: Grew) -> Grown:
    return Grown(size=state.size + 1, text=state.text + fact.text)


def any_command(chance: random.Random) -> StormCommand:
    if chance.random() < 0.5:
        return lease_lock.storms.command(chance)
    message = chance.choice((Raise(), Grow(), Grow(), Flood()))
    return StormCommand(key("bad", chance.choice("ab")), message)


BESIDE = but(
    lease_lock.storms.STORMS,
    kinds=[LOCK, BAD],
    command=any_command,
    commands_max=60,
    may_fail=True,
)


@pytest.mark.slow
def test_kinds_that_raise_flood_and_grow_leave_the_others_unharmed(storm_seconds: float) -> None:
    """The lock's rules hold, each of its clients is answered, and no message of it is a dead
    letter."""
    for seed in in_time(storm_seconds * SHARE_OF_TIME, count(fresh_seed())):
        play_kinds(but(BESIDE, at_end=[*BESIDE.at_end, _locks_are_well]), draw_kinds(BESIDE, seed))


def _locks_are_well(history: object) -> None:
    for told in history.told:  # type: ignore[attr-defined]
        if told.key.startswith("lock/"):
            assert told.ended_s is not None, f"not answered: {told.message}"
            assert not isinstance(told.reply, DeadLettered), f"a dead letter: {told.message}"


def test_a_state_grows_to_its_limit_and_no_further() -> None:
    storms = KindStorms(
        [BAD], command=lambda chance: StormCommand(key("bad", "a"), Grow()), may_fail=True
    )
    sizes: list[int] = []

    def note(history: object) -> None:
        sizes.append(history.of_kind("bad")["a"].size)  # type: ignore[attr-defined]

    scenario = draw_kinds(but(storms, commands_max=30), 5)
    calm = StormScenario(
        seed=5, daemons=1, sizes=scenario.sizes, actions=scenario.actions, storm_s=60.0
    )
    play_kinds(but(storms, at_end=[note]), calm)
    assert 1 <= sizes[-1] <= 4, "four times a thousand, and what is around them"
    assert DEAD_LETTERS_MAX


def test_values_are_drawn_for_what_fields_may_be() -> None:
    chance = random.Random(1)
    for wanted in (int, str | None, tuple[int, str], list[float], dict[str, bool], Acquire):
        assert drawn_value(wanted, chance) is not NotImplemented
    with pytest.raises(TypeError, match="give the storms a `command`"):
        drawn_value(random.Random, chance)


# ---- the command ----


def chaos(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peloton", "chaos", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)


@pytest.mark.slow
def test_the_command_plays_keeps_replays_and_saves(tmp_path: Path) -> None:
    example = ROOT / "examples" / "extensions" / "lease_lock"
    kinds = ("--kinds", "lease_lock.storms")
    well = chaos(example, "run", *kinds, "--seeds", "3", "--first-seed", "1")
    assert well.returncode == 0 and "3 storms from seed 1" in well.stdout, well.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from lease_lock.storms import STORMS as GOOD\n"
        "from dataclasses import replace\n"
        "def never(history):\n"
        "    assert not history.facts, 'a fact: there should be none'\n"
        "STORMS = replace(GOOD, always=[never])\n"
    )
    (tmp_path / "lease_lock").symlink_to(example / "lease_lock")
    kinds = ("--kinds", "wrong")
    failed = chaos(tmp_path, "run", *kinds, "--seeds", "8", "--first-seed", "1", "--save", "kept")
    assert failed.returncode == 1 and "a fact: there should be none" in failed.stdout
    (kept, *_) = sorted((tmp_path / "kept").iterdir())
    page = tmp_path / "page.html"
    again = chaos(tmp_path, "replay", *kinds, str(kept), "--report", str(page))
    assert again.returncode == 1 and "FAILED seed" in again.stdout
    assert "a fact: there should be none" in page.read_text()
    saved = chaos(tmp_path, "save", *kinds, str(kept), "test_kept.py")
    assert saved.returncode == 0, saved.stderr
    test = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_kept.py"],
        cwd=tmp_path, text=True, capture_output=True, check=False,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )  # fmt: skip
    assert test.returncode == 1 and "KindStormFailed" in test.stdout, test.stdout + test.stderr
    none = chaos(tmp_path, "run", "--kinds", "nowhere.at.all")
    assert none.returncode == 64 and "No module named 'nowhere'" in none.stderr
