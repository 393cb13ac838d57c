"""Answers that are still to come: many as one, and one converted.

Turns futures of answers into other ones, on whatever thread the last answer comes. No future has an
exception: a failure is `Unavailable`, because an exception would be lost in a callback.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.turning.supervision import attempt_query
from peloton.runtime.shells.shell_messages import resolve
from peloton.runtime.vocabulary import Unavailable


def all_answers(answers: list[Future[Any]]) -> Future[Any]:
    """Return a future of all answers, in order; or of the first that is unavailable."""
    whole: Future[Any] = Future()
    done = itertools.count(1)  # `next` of it is atomic among threads

    def one(part: Future[Any]) -> None:
        if isinstance(part.result(), Unavailable):
            resolve(whole, part.result())
            return
        if next(done) == len(answers):
            resolve(whole, [each.result() for each in answers])

    if not answers:
        resolve(whole, [])
    for each in answers:
        each.add_done_callback(one)
    return whole


def then(answer: Future[Any], do: Callable[[Any], Any]) -> Future[Any]:
    """Return a future of the answer converted by a function; an unavailable answer stays so.

    If the function raises, the answer is `Unavailable` with the error: an exception in a callback
    would be lost, and the caller would wait forever.
    """
    future: Future[Any] = Future()

    def done(part: Future[Any]) -> None:
        found = part.result()
        resolve(future, found if isinstance(found, Unavailable) else attempt_query(do, found))

    answer.add_done_callback(done)
    return future
