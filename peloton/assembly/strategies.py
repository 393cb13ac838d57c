"""The placement strategies of this process: those of the package, and those of other distributions.

Turns entry points into a table of strategies, once, when a daemon starts; one that cannot be used
is `CannotStart` with the distribution that brought it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint

from peloton.assembly.installed import BadInstalled, Installed, load
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


def installed_strategies(found: Iterable[EntryPoint] | None = None) -> Mapping[str, Strategy]:
    """Return all strategies by name, with those registered by others. Raises BadInstalled.

    A strategy that is registered twice counts once.
    """
    table, sources = {**STRATEGIES}, dict.fromkeys(STRATEGIES, OWN_DISTRIBUTION)
    for each in load(STRATEGY_GROUP, "placement strategy", wanted=Strategy, found=found):
        known = table.get(each.name)
        if known is not None:
            if each.found is known:
                continue
            text = f"{sources[each.name]} has a strategy of that name"
            raise BadInstalled(f"{each.source}: {text}")
        table[each.name], sources[each.name] = _checked(each), each.owner
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


def _checked(installed: Installed) -> Strategy:
    """Return the strategy with a guard around it, after a trial on two hosts."""
    source, strategy = installed.source, installed.found
    if strategy.name != installed.name or _NAME.fullmatch(installed.name) is None:
        text = f"calls itself {strategy.name!r}; both are one name of a-z, 0-9, - and _"
        raise BadInstalled(f"{source} {text}")
    if not callable(strategy.rank) or strategy.each_max < 1:
        raise BadInstalled(f"{source} needs a `rank` to call, and an `each_max` of 1 or more")
    found = guarded(strategy, f"{installed.owner} ({installed.value})")
    try:
        try_rank(found)
    except StrategyFailed as error:
        raise BadInstalled(f"{source} fails on two empty hosts: {error}") from error
    return found
