"""When a failed batch task is run again, as clients say it.

`retry` of a config becomes the rules of its tasks, or a refusal that names the field. Whether the
job may have such rules is checked later.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable

from peloton.actors.task.run_messages import RetryRules
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.bad_field import BadField

PAUSE_MAX_S = 24 * 3600.0
CODE_MAX, SIGNALS_FROM = 255, 128


def to_rules(sent: task.RetryConfig) -> RetryRules:
    """Return the rules of a task; raises BadField."""
    usual = RetryRules()
    for field in ("pauseSeconds", "maxPauseSeconds"):
        seconds = getattr(sent, field)
        if not math.isfinite(seconds) or not 0 <= seconds <= PAUSE_MAX_S:
            raise BadField(field, f"must be between 0 and {PAUSE_MAX_S:.0f}, got {seconds:g}")
    pause_s = sent.pauseSeconds if sent.HasField("pauseSeconds") else usual.pause_s
    longest_s = max(pause_s, usual.pause_max_s)
    if sent.HasField("maxPauseSeconds"):
        longest_s = sent.maxPauseSeconds
        if longest_s < pause_s:
            text = f"must be ≥ pauseSeconds, {pause_s:g}, got {longest_s:g}"
            raise BadField("maxPauseSeconds", text)
    both = sorted({*sent.on} & {*sent.never})
    if both:
        raise BadField("never", f"{both[0]} is in `on` as well")
    return RetryRules(pause_s, longest_s, _ways(sent.on, "on"), _ways(sent.never, "never"))


def _ways(codes: Iterable[int], field: str) -> tuple[str, ...]:
    """Return how a run ended: its exit code, or for 128 + N the signal N, too."""
    found: set[str] = set()
    for at, code in enumerate(codes):
        if not 0 < code <= CODE_MAX:
            text = f"an exit code of a failure is between 1 and {CODE_MAX}, got {code}"
            raise BadField(f"{field}[{at}]", text)
        found.add(str(code))
        if code - SIGNALS_FROM in signal.valid_signals():
            try:
                found.add(signal.Signals(code - SIGNALS_FROM).name)
            except ValueError:
                continue  # a realtime signal, which has no name: a shell tells it by its code
    return tuple(sorted(found))
