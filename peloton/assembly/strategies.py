"""The placement strategies of this process: those of the package, and those of other distributions.

Turns entry points into a table of strategies, once, when a daemon starts; one that cannot be used
is `CannotStart` with the distribution that brought it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from peloton.failures import CannotStart
from peloton.gateway.translate.strategy_choice import StrategyChoice
from peloton.placement.strategies import (
    STRATEGIES,
    Strategy,
    StrategyFailed,
    guarded,
    try_rank,
)
from peloton.settings.daemon import DaemonSettings
from peloton.settings.placement import BY_TYPE

STRATEGY_GROUP = "peloton.placement.strategies"
OWN_DISTRIBUTION = "peloton-scheduler"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)


class BadStrategy(CannotStart):
    """An installed strategy that cannot be used; the text names it and its distribution."""


def installed_strategies(found: Iterable[EntryPoint] | None = None) -> Mapping[str, Strategy]:
    """Return all strategies by name, with those registered by others. Raises BadStrategy.

    A strategy that is registered twice counts once.
    """
    table, sources = {**STRATEGIES}, dict.fromkeys(STRATEGIES, OWN_DISTRIBUTION)
    every = entry_points(group=STRATEGY_GROUP) if found is None else found
    for entry in sorted(set(every), key=lambda each: (each.name, _owner(each), each.value)):
        strategy = _loaded(entry)
        known = table.get(entry.name)
        if known is not None:
            if strategy is known:
                continue
            text = f"{sources[entry.name]} has a strategy of that name"
            raise BadStrategy(f"{_source(entry)}: {text}")
        table[entry.name], sources[entry.name] = _checked(entry, strategy), _owner(entry)
    return table


def strategies_of(settings: DaemonSettings) -> StrategyChoice:
    """Return the table, and the default of each type of job. Raises CannotStart."""
    choice = StrategyChoice(installed_strategies(), {**BY_TYPE, **settings.placement.strategies})
    wrong = [
        f"placement.strategies.{kind}: {choice.unknown(name)}"
        for kind, name in sorted(settings.placement.strategies.items())
        if name not in choice.table
    ]
    if wrong:
        raise CannotStart("\n".join(wrong))
    return choice


def strategy_problems(settings: DaemonSettings) -> list[str]:
    """Return why the strategies would prevent a start."""
    try:
        strategies_of(settings)
    except CannotStart as error:
        return str(error).split("\n")
    return []


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"


def _source(entry: EntryPoint) -> str:
    version = f" {entry.dist.version}" if entry.dist is not None else ""
    return f"placement strategy {entry.name!r} of {_owner(entry)}{version} ({entry.value})"


def _loaded(entry: EntryPoint) -> Strategy:
    try:
        strategy = entry.load()
    except Exception as error:  # whatever the import of somebody else's module raises
        text = f"cannot be loaded: {type(error).__name__}: {error}"
        raise BadStrategy(f"{_source(entry)} {text}") from error
    if not isinstance(strategy, Strategy):
        text = f"is a {type(strategy).__name__}, not a Strategy of peloton.placement.strategies"
        raise BadStrategy(f"{_source(entry)} {text}")
    return strategy


def _checked(entry: EntryPoint, strategy: Strategy) -> Strategy:
    """Return the strategy with a guard around it, after a trial on two hosts."""
    source = _source(entry)
    if strategy.name != entry.name or _NAME.fullmatch(entry.name) is None:
        text = f"calls itself {strategy.name!r}; both are one name of a-z, 0-9, - and _"
        raise BadStrategy(f"{source} {text}")
    if not callable(strategy.rank) or strategy.each_max < 1:
        raise BadStrategy(f"{source} needs a `rank` to call, and an `each_max` of 1 or more")
    found = guarded(strategy, f"{_owner(entry)} ({entry.value})")
    try:
        try_rank(found)
    except StrategyFailed as error:
        raise BadStrategy(f"{source} fails on two empty hosts: {error}") from error
    return found
