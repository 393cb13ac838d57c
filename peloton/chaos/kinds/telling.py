"""Storms over kinds for people: found by the name of a module, kept as files, reported."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterator
from typing import NamedTuple

from peloton.chaos.kinds.declaring import KindStorms
from peloton.chaos.kinds.playing import KindStormFailed, KindStormRun
from peloton.runtime.simulation.scenario import StormScenario
from peloton.sdk.kit import ActorKind

SHOWN_CHARS_MAX = 300
STANDARD = "STORMS"
_TEST = '''"""A storm that failed once: seed {seed}, {sort}."""

from pathlib import Path

from peloton.chaos.kinds import play_kinds
from peloton.chaos.kinds.telling import load_storms
from peloton.runtime.simulation.scenario import StormScenario, load_scenario


def test_storm_{seed}() -> None:
    scenario = load_scenario(StormScenario, Path(__file__).with_name({file!r}))
    play_kinds(load_storms({name!r}), scenario)
'''


class BadStorms(ValueError):
    """A name under which there are no storms, and why."""


class TimelineEntry(NamedTuple):
    """One line of a storm's timeline: a fault, what a client did, or a fact."""

    at_s: float
    sort: str
    text: str


def load_storms(name: str) -> KindStorms:
    """Return the storms of `MODULE:NAME`, or `MODULE:STORMS`, or else those over its kinds.

    Raises BadStorms.
    """
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the import of somebody else's module raises
        raise BadStorms(f"{module}: {type(error).__name__}: {error}") from error
    if attribute:
        one = getattr(found, attribute, None)
        if not isinstance(one, KindStorms):
            raise BadStorms(f"{name} is no KindStorms of peloton.chaos.kinds")
        return one
    standard = getattr(found, STANDARD, None)
    if isinstance(standard, KindStorms):
        return standard
    kinds = [value for value in vars(found).values() if isinstance(value, ActorKind)]
    if not kinds:
        raise BadStorms(f"{module} has neither KindStorms called {STANDARD} nor an ActorKind")
    return KindStorms(kinds)


def as_test(scenario: StormScenario, file: str, *, name: str, sort: str) -> str:
    """Return a pytest module that plays the scenario in `file` beside it."""
    return _TEST.format(seed=scenario.seed, sort=sort, file=file, name=name)


def timeline(storms: KindStorms, scenario: StormScenario) -> tuple[list[TimelineEntry], str]:
    """Play a storm; return what happened by time, and the failure, if there was one."""
    stage, failure = KindStormRun(storms, scenario), ""
    begun_s = stage.world.now - stage.world.elapsed_s
    try:
        stage.play()
    except KindStormFailed as failed:
        failure = str(failed)
    finally:
        stage.world.end()
    entries = [
        TimelineEntry(at, "client" if text.startswith("tell ") else "fault", text)
        for at, text in stage.storm.log
    ]
    for fact in stage.history.facts:
        text = f"{fact.key} {fact.fact} because {fact.because}"
        entries.append(TimelineEntry(fact.at_s - begun_s, "fact", text))
    for told in stage.history.told:
        if told.ended_s is not None:
            text = f"{told.key} {type(told.message).__name__} → {told.reply}"
            entries.append(TimelineEntry(told.ended_s, "reply", text))
    return sorted(entries), failure


def as_page(scenario: StormScenario, entries: list[TimelineEntry], *, failure: str) -> str:
    """Return the timeline as a page of HTML that needs nothing else."""
    return "".join(_page(scenario, entries, failure=failure))


def _page(scenario: StormScenario, entries: list[TimelineEntry], *, failure: str) -> Iterator[str]:
    title = f"Storm {scenario.seed}"
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
    yield "<style>body{font:14px system-ui;margin:2em}td{padding:2px 8px;vertical-align:top}"
    yield "td:first-child{text-align:right;font-variant-numeric:tabular-nums}"
    yield ".fault{background:#fde8e8}.client{background:#e8f0fd}.reply{background:#e9f7ec}</style>"
    yield f"<h1>{title}</h1><p>{html.escape(failure or 'Nothing was wrong.')}</p>"
    yield f"<p>{scenario.daemons} daemons, shards {html.escape(str(scenario.sizes))}, "
    yield f"{scenario.storm_s:g} s, faults {html.escape(', '.join(scenario.faults) or 'none')}.</p>"
    yield "<table><tr><th>s<th>what<th></tr>"
    for entry in entries:
        text = html.escape(entry.text[:SHOWN_CHARS_MAX])
        yield f"<tr class={entry.sort}><td>{entry.at_s:.3f}<td>{entry.sort}<td>{text}</tr>"
    yield "</table></html>\n"
