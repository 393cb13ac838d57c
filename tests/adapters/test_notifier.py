"""The notifier with real sockets: attempts, outcomes, and what it does not call."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from peloton.actors.job.messages import job_key
from peloton.actors.job.notice_messages import NOTIFIER, Notice, NoticeHandled, PostNotice
from peloton.actors.job.stages import JobStates
from peloton.assembly import notifier
from peloton.assembly.notifier import Notifier, Retries
from peloton.pauses import Pauses
from peloton.runtime.core.turning.envelope import Envelope
from peloton.settings.notify import LOOPBACK, AllowedUrls
from tests.adapters.hooks import WAIT_S, Hooks

JOB = job_key("5bd4ab6a-39f5-4a0c-8d2c-6a8e7f0b7a51")


def order(url: str, number: int = 1) -> PostNotice:
    notice = Notice(number, JobStates.FAILED, (("FAILED", 2),), 0.0, 1_800_000_000.5)
    return PostNotice(JOB, url, notice, "n", "me", "/p", 2, 1_800_000_000.0)


class Told:
    """A notifier, its answers and what it reports."""

    def __init__(self, *allowed: str, attempts_max: int = 3) -> None:
        self.answers: queue.Queue[Envelope] = queue.Queue()
        self.reports: list[str] = []
        self.notifier = Notifier(
            AllowedUrls(allowed or [LOOPBACK]),
            cluster="c",
            report=self.reports.append,
            retries=Retries(attempts_max, Pauses(0.01, 0.01)),
        )
        self.notifier.start(self._take)

    def _take(self, envelopes: Iterable[Envelope]) -> None:
        for envelope in envelopes:
            self.answers.put(envelope)

    def send(self, *orders: PostNotice) -> list[Envelope]:
        """What is answered at once."""
        mail = [Envelope(NOTIFIER, one, sender=JOB) for one in orders]
        return [*self.notifier.receive(mail, 0.0)]

    def outcome(self) -> NoticeHandled:
        answer = self.answers.get(timeout=WAIT_S)
        assert (answer.to, answer.sender) == (JOB, NOTIFIER)
        assert isinstance(answer.message, NoticeHandled)
        return answer.message


@contextmanager
def telling(*allowed: str, attempts_max: int = 3) -> Iterator[Told]:
    told = Told(*allowed, attempts_max=attempts_max)
    try:
        yield told
    finally:
        told.notifier.close()


def test_an_end_is_told_once_and_a_repeat_is_answered() -> None:
    with Hooks() as hooks, telling() as told:
        with hooks.answering:
            assert told.send(order(hooks.url), order(hooks.url)) == []
        outcome = told.outcome()
        assert outcome.posted and outcome.number == 1 and "attempt 1" in outcome.text
        path, body = hooks.next()
        assert path == "/" and hooks.empty()
        assert body == {
            "job_id": JOB[4:],
            "end": 1,
            "name": "n",
            "owner": "me",
            "pool": "/p",
            "state": "FAILED",
            "instances": 2,
            "counts": {"FAILED": 2},
            "created_at": "2027-01-15T08:00:00.000Z",
            "started_at": None,
            "completed_at": "2027-01-15T08:00:00.500Z",
            "cluster": "c",
        }
        (again,) = told.send(order(hooks.url))
        assert again.message == outcome and hooks.empty()
        told.send(order(hooks.url, 2))
        assert told.outcome().number == 2 and hooks.next()[1]["end"] == 2


def test_it_is_tried_again_until_it_is_taken() -> None:
    with Hooks([500, 429]) as hooks, telling() as told:
        told.send(order(hooks.url))
        assert "attempt 3" in told.outcome().text
        assert [hooks.next()[0] for _ in range(3)] == ["/", "/", "/"]
        assert not told.reports


@pytest.mark.parametrize("status", [302, 307, 404, 503])
def test_it_is_given_up_and_no_redirection_is_followed(status: int) -> None:
    with Hooks([status] * 3) as hooks, telling() as told:
        told.send(order(f"{hooks.url}/here"))
        outcome = told.outcome()
        assert not outcome.posted
        assert outcome.text.endswith(f"status {status}, at the last of 3 attempts")
        assert [hooks.next()[0] for _ in range(3)] == ["/here"] * 3 and hooks.empty()
        (line,) = told.reports
        assert line.startswith(f"warning: the end of {JOB} is not told: 127.0.0.1:")


def test_what_is_not_allowed_is_not_called() -> None:
    with Hooks() as hooks, telling("https://example.com/") as told:
        told.send(order(hooks.url))
        outcome = told.outcome()
        assert not outcome.posted and "is not below a prefix" in outcome.text and hooks.empty()


@pytest.mark.parametrize("url", ["https://a.b/T0/s3cret?key=s3cret", "https://a.b/s3cret/../x"])
def test_neither_logs_nor_the_story_of_a_job_show_its_url(url: str) -> None:
    """What such URLs end with is often all that protects them."""
    with telling("https://a.b/other") as told:
        told.send(order(url))
        outcome = told.outcome()
        assert not outcome.posted and outcome.text and "s3cret" not in outcome.text
        assert len(told.reports) == 1 and "s3cret" not in told.reports[0]


def test_nobody_listens_or_no_http_is_spoken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
    with telling(attempts_max=1) as told:
        told.send(order(f"http://127.0.0.1:{port}/"))
        assert "Connect call failed" in told.outcome().text
        with socket.create_server(("127.0.0.1", 0)) as server:
            told.send(order(f"http://127.0.0.1:{server.getsockname()[1]}/", 2))
            caller, _ = server.accept()
            with caller:
                assert caller.recv(65536).startswith(b"POST / HTTP/1.1\r\nHost: 127.0.0.1:")
                caller.sendall(b"SSH-2.0-x\r\n")
            assert "does not speak HTTP" in told.outcome().text


def test_a_silent_one_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "CALL_S_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, telling(attempts_max=1) as told:
        told.send(order(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
        assert "no answer within" in told.outcome().text


def test_what_finds_no_room_is_left_to_its_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "UNDER_WAY_MAX", 0)
    with Hooks() as hooks, telling() as told:
        assert told.send(order(hooks.url)) == []
        monkeypatch.setattr(notifier, "UNDER_WAY_MAX", 1)
        told.send(order(hooks.url))
        assert told.outcome().posted


def test_it_ends_with_calls_under_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, telling() as told:
        told.send(order(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
        caller, _ = silent.accept()
        caller.close()
