"""The notice that a program gets before it is ended, and what it says then."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from peloton.sdk import preemption
from peloton.sdk.preemption import Checkpointing, preemption_notice


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(preemption.SANDBOX, str(tmp_path))
    return tmp_path


def test_a_notice_says_for_whom_and_one_who_has_saved_leaves(sandbox: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with preemption_notice() as notice:
        assert not notice and not notice.wait(0)
        with pytest.raises(RuntimeError, match="no notice has come"):
            notice.saved()
        (sandbox / "preempted").write_text("pool /b waits for its own\n")
        os.kill(os.getpid(), signal.SIGTERM)
        assert notice.wait(60.0) and notice.reason == "pool /b waits for its own"
        with pytest.raises(SystemExit) as left:
            notice.saved()
    assert left.value.code == preemption.EXIT_SAVED != 0
    assert (sandbox / "checkpointed").exists()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_plain_stop_gives_no_reason_and_all_who_wait_are_told(sandbox: Path) -> None:
    with preemption_notice() as outer, preemption_notice() as inner:
        os.kill(os.getpid(), signal.SIGTERM)
        assert outer and inner
        assert (outer.reason, inner.reason) == ("", "")


def test_what_a_program_has_put_there_is_left_alone(sandbox: Path) -> None:
    (sandbox / "checkpointed").write_text("mine")
    preemption.grace_over()
    assert (sandbox / "checkpointed").read_text() == "mine"


def test_outside_of_the_main_thread_there_are_no_signals() -> None:
    raised = []

    def enter() -> None:
        try:
            with preemption_notice():
                pass
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert raised == ["only the main thread gets signals: enter preemption_notice() there"]


def test_what_can_go_on_is_known_by_its_method() -> None:
    class Counter:
        def __call__(self) -> None:
            pass

        def checkpoint(self) -> Callable[[], None]:
            return self

    assert isinstance(Counter(), Checkpointing)
    assert not isinstance(len, Checkpointing)
