"""A bug in a servicer: the client learns that there is one, and nothing else."""

from __future__ import annotations

import grpc
import pytest

from peloton.gateway.guard import guarded_method


class Ended(Exception):
    """What `abort` raises."""


class Context:
    """As much of a call's context as the guard uses."""

    def __init__(self) -> None:
        self.ended: tuple[grpc.StatusCode, str] | None = None

    def code(self) -> grpc.StatusCode | None:
        return None if self.ended is None else self.ended[0]

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.ended = (code, text)
        raise Ended


def test_a_bug_is_internal_without_its_text() -> None:
    context = Context()

    def broken(request: object, context: object) -> None:
        raise KeyError("secret")

    with pytest.raises(Ended):
        guarded_method(broken, "Service.Method")(None, context)  # type: ignore[arg-type]
    assert context.ended is not None
    assert context.ended[0] == grpc.StatusCode.INTERNAL
    assert "secret" not in context.ended[1]


def test_a_call_that_was_ended_on_purpose_keeps_its_status() -> None:
    context = Context()

    def refusing(request: object, context: Context) -> None:
        context.abort(grpc.StatusCode.NOT_FOUND, "job not found")

    with pytest.raises(Ended):
        guarded_method(refusing, "Service.Method")(None, context)  # type: ignore[arg-type]
    assert context.ended == (grpc.StatusCode.NOT_FOUND, "job not found")
