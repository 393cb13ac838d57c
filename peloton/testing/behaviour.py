"""What tasks do in a cluster in virtual time, as a test scripts it.

cluster.submit(instances=3, does=fails(code=2))
cluster.submit(does=[fails(), succeeds(after=5)])          by attempt; the last one repeats
cluster.submit(does=lambda attempt: runs() if attempt.instance else dies("SIGKILL"))
cluster.submit(does=calls(function))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Attempt(NamedTuple):
    """One run of one task. `number` counts its runs, from 1."""

    job: str
    instance: int
    number: int


@dataclass(frozen=True)
class Behaviour:
    """How a run ends, and how many virtual seconds after its start; None: when it is stopped.

    A `signal`, such as "SIGKILL", comes in place of the exit code. What is called may call the
    cluster; the run succeeds when it returns, and fails when it raises.
    """

    after: float | None = 1.0
    exit_code: int = 0
    signal: str = ""
    called: Callable[[Attempt], object] | None = None

    def __post_init__(self) -> None:
        if self.after is not None and not 0 <= self.after < float("inf"):
            raise ValueError(f"after: must be ≥ 0 and finite, or None, got {self.after}")
        if not 0 <= self.exit_code <= 255:
            raise ValueError(f"exit_code: must be from 0 to 255, got {self.exit_code}")


Does: TypeAlias = Behaviour | Sequence[Behaviour] | Callable[[Attempt], Behaviour]


def succeeds(after: float = 1.0) -> Behaviour:
    """End with exit code 0 after so many virtual seconds."""
    return Behaviour(after)


def fails(code: int = 1, *, after: float = 1.0) -> Behaviour:
    """End with this exit code, which is not 0."""
    if code == 0:
        raise ValueError("code: must not be 0, which is no failure")
    return Behaviour(after, exit_code=code)


def dies(signal: str = "SIGKILL", *, after: float = 1.0) -> Behaviour:
    """End by a signal."""
    return Behaviour(after, signal=signal)


def runs() -> Behaviour:
    """Run until the run is stopped, or its host is lost."""
    return Behaviour(None)


def calls(function: Callable[[Attempt], object], *, after: float = 0.0) -> Behaviour:
    """Call a function of the test when the run starts; end that long after it returned or raised.

    It runs on the test's thread, while the test waits for the cluster.
    """
    return Behaviour(after, called=function)


def behaviour_of(does: Does, attempt: Attempt) -> Behaviour:
    """Return what a run does by a script. Raises TypeError for a script that says nothing."""
    if isinstance(does, Behaviour):
        return does
    found: Behaviour | None
    if callable(does):
        found = does(attempt)
    else:
        found = does[min(attempt.number, len(does)) - 1] if does else None
    if not isinstance(found, Behaviour):
        raise TypeError(
            f"does: {attempt} has to get a Behaviour, such as succeeds(), got {found!r}"
        )
    return found
