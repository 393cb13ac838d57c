"""Why a stream of a master is over, in words from which the settings can be mended."""

from __future__ import annotations

import socket

import pytest

from peloton.backends.mesos.masters.driver import TEXT_MAX, why_of

AT = "west.example:5050"


def http(code: int, body: object) -> RuntimeError:
    """As pymesos raises it."""
    return RuntimeError(f"Failed with HTTP {code}: {body}")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            socket.gaierror(-2, "Name or service not known"),
            f"the host name of the master {AT} is not known (Name or service not known)",
        ),
        (
            http(501, b"<!DOCTYPE HTML>\n<html>nothing of use"),
            f"{AT} does not answer as a Mesos master: HTTP 501",
        ),
        (
            http(401, b"no such principal"),
            f"{AT} does not answer as a Mesos master: HTTP 401: no such principal",
        ),
        (http(404, b""), f"{AT} does not answer as a Mesos master: HTTP 404"),
        (RuntimeError("Response is not chunked"), "RuntimeError: Response is not chunked"),
        (ConnectionResetError(104, "reset"), "ConnectionResetError: [Errno 104] reset"),
    ],
)
def test_it_names_what_has_to_be_mended(error: Exception, why: str) -> None:
    assert why_of(error, AT) == why


def test_a_long_answer_is_cut() -> None:
    assert len(why_of(http(500, b"x" * 10_000), AT)) < TEXT_MAX + 100
