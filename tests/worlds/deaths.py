"""Deaths of processes at port calls of a scripted history, which nothing may survive wrongly.

Plays the history with them, and fails the test for what is wrong afterwards. Must not choose them.
"""

from __future__ import annotations

from peloton.chaos.cluster.points import Deaths, ScriptedHistory, play


def survives(deaths: Deaths, *, history: type[ScriptedHistory] = ScriptedHistory) -> bool:
    """Whether the deaths came to pass; only second ones may come too late to."""
    wrong = play(deaths, history=history)
    assert not wrong, f"{deaths}: " + "; ".join(wrong)
    if not deaths.again:
        assert not deaths.missed, f"{deaths} never came"
    return not deaths.missed
