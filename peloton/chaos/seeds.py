"""Seeds of storms, and work for each of them on several processes."""

from __future__ import annotations

import multiprocessing
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import AsyncResult
from typing import TypeVar

AHEAD = 4
"""So many storms for each worker are under way or wait: one that takes long holds nobody up."""
STORMS_PER_WORKER = 100
FRESH_SEEDS = 10**9

T = TypeVar("T")


def fresh_seed() -> int:
    """Return a seed that probably nobody has played."""
    return secrets.randbelow(FRESH_SEEDS)


def in_time(seconds: float, some: Iterable[T]) -> Iterator[T]:
    """Yield the first of them, and more until the time is over."""
    end_s = time.monotonic() + seconds
    for each in some:
        yield each
        if time.monotonic() >= end_s:
            return


def of_each(one: Callable[[int], T], seeds: Iterable[int], *, jobs: int) -> Iterator[T]:
    """Yield the results for all seeds, in order; `one` has to be importable where `jobs` > 1."""
    if jobs <= 1:
        yield from map(one, seeds)
        return
    waiting: deque[AsyncResult[T]] = deque()
    # Workers are replaced now and then, which frees what a thousand worlds leave in memory.
    with multiprocessing.get_context("spawn").Pool(
        jobs, maxtasksperchild=STORMS_PER_WORKER
    ) as pool:
        for seed in seeds:
            waiting.append(pool.apply_async(one, (seed,)))
            if len(waiting) >= jobs * AHEAD:
                yield waiting.popleft().get()
        yield from (result.get() for result in waiting)
