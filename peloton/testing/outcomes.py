"""How runs of a test end, in the words of hosts."""

from __future__ import annotations

from peloton.actors.task.messages import End, RunOutcome
from peloton.testing.behaviour import Attempt, Behaviour


def called_outcome(found: Behaviour, attempt: Attempt) -> RunOutcome:
    """Call the function of a run, which stands for its process; return how the run ends."""
    assert found.called is not None
    try:
        found.called(attempt)
    except Exception as error:  # ends the run, not the test
        text = f"{type(error).__name__}: {error}"
        return RunOutcome(End.FAILED, 1, reason="exited", message=text)
    return scripted_outcome(found)


def scripted_outcome(found: Behaviour) -> RunOutcome:
    """Return the end of a run that does this."""
    if found.signal:
        return RunOutcome(End.FAILED, signal=found.signal, message=f"ended by {found.signal}")
    if found.exit_code:
        text = f"Command exited with status {found.exit_code}"
        return RunOutcome(End.FAILED, found.exit_code, reason="exited", message=text)
    return RunOutcome(End.SUCCEEDED, 0)
