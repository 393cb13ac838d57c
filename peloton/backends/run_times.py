"""Times of runs, made equal where many are reported together.

Turns exact times into few different ones: each time that a host reports to tasks is a message of
its own, so a thousand ends of one moment must not have a thousand times. A start becomes the
earliest, an end the latest of those that are reported with it and lie within `GRAIN_S`: a run never
seems shorter than it was, and one that is reported alone keeps its exact times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from peloton.backends import keeper_messages as km

GRAIN_S = 0.1


def earliest(times: Iterable[float]) -> dict[float, float]:
    """The common time of starts, for each of these times."""
    times = [*times]
    first: dict[int, float] = {}
    for at in times:
        first[_grain(at)] = min(at, first.get(_grain(at), at))
    return {at: first[_grain(at)] for at in times}


def latest(times: Iterable[float]) -> dict[float, float]:
    """The common time of ends, for each of these times."""
    times = [*times]
    last: dict[int, float] = {}
    for at in times:
        last[_grain(at)] = max(at, last.get(_grain(at), at))
    return {at: last[_grain(at)] for at in times}


def _grain(at: float) -> int:
    return int(at / GRAIN_S)


def with_common_times(reports: Sequence[km.RunReport]) -> Sequence[km.RunReport]:
    """Reports of a keeper that came together."""
    if len(reports) < 2 and not any(isinstance(one, km.KeeperRunsListed) for one in reports):
        return reports
    lists = [run for one in reports if isinstance(one, km.KeeperRunsListed) for run in one.runs]
    ends = [one for one in reports if isinstance(one, km.KeeperRunEnded)]
    ends += [run.ended for run in lists if run.ended is not None]
    starts = [one.at for one in reports if isinstance(one, km.RunStarted)]
    starts += [run.started_at for run in lists]
    starts += [end.started_at for end in ends if end.started_at is not None]
    begins, finishes = earliest(starts), latest(end.at for end in ends)

    def common_end(end: km.KeeperRunEnded) -> km.KeeperRunEnded:
        begin = None if end.started_at is None else begins[end.started_at]
        return replace(end, at=finishes[end.at], started_at=begin)

    def common_run(run: km.ListedRun) -> km.ListedRun:
        end = None if run.ended is None else common_end(run.ended)
        return replace(run, started_at=begins[run.started_at], ended=end)

    def common(report: km.RunReport) -> km.RunReport:
        if isinstance(report, km.RunStarted):
            return replace(report, at=begins[report.at])
        if isinstance(report, km.KeeperRunEnded):
            return common_end(report)
        if isinstance(report, km.KeeperRunsListed):
            return replace(report, runs=tuple(map(common_run, report.runs)))
        return report

    return [common(report) for report in reports]
