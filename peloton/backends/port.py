"""The port of backends: what a thing must do that runs what hosts order.

Names the messages that cross it and what each of them promises. It must not know any backend;
`tests/contracts/test_backend.py` checks all of them against what is written here.

A backend is the address `backend/<name>`. One that is local to the daemon (processes, pretended
runs) is a soft machine that each daemon with hosts has of its own; what it holds is not journaled.
One that exists once (a subscription to an outside engine) is a kind called "backend" in the group
hostmgr with `BACKEND_MESSAGES`, and its owner is found like that of any other actor. Hosts cannot
tell the two apart.

What a backend must do:

- **Attempts at least once, results at most once.** A run is named by its run id, which is the
  backend's own task id too. `StartRuns` may come twice: a run that is known is not started again,
  but reported again (`RunsStarted`, or `RunsEnded`). An end is reported with its outcome, and again
  whenever it is asked for, until `ForgetRuns` says that it is journaled.
- **A way to look.** `ListRuns` is answered with all runs of the host that the backend knows, ended
  ones included until they are forgotten (`RunsListed`); it carries the `asked_at` of its question.
  A list must not overtake an earlier order of the same host. An end that cannot be listed may
  follow the list as `RunsEnded`.
- **Epochs.** Orders carry the epoch of the host's shard. Once an order with a higher epoch was
  obeyed, those with a lower one are not; they are not answered either, for nobody waits any more.
  `ForgetRuns` carries none: it leaves its owner only after the end is journaled.
- **Kills.** `StopRuns` ends a run politely first, by force after the grace. A run that has ended is
  reported again. For one that is unknown the host is shown what is known (`RunsListed`), or told to
  compare (`BackendUp`).
- **Identity.** What keeps runs beyond the daemon names itself in `RunsListed.keeper`. An order of
  `StartRuns` for another keeper is not obeyed, but answered with a list.
- **Up and down.** `BackendUp` says that the host can be asked: at the start, after every outage and
  after every reset, because orders may have been lost. `BackendDown` says why not; so is any order
  answered that cannot be obeyed for now. `AskBackend` is always answered, with one of the two.
- **Hosts come and go.** `HostAppeared` brings a host with its capacity, also one that was never
  configured; it is repeated until the host gives an order. `HostLeft` says that it is gone: its
  orders are not obeyed, each is answered so again, and nothing is reported of it, until it appears
  again. What ran there is listed then.
- **Poison.** An order that makes no sense for one run ends that run, with a reason, and no other.
  One that cannot be read at all may raise: the shell resets the backend, which then tells every
  host to compare.

Reports are lost where a shard is on its way to another owner. Nobody repeats them but for the two
exceptions above: the host asks again, because it knows what it has not heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from peloton.actors.host import messages as m
from peloton.actors.task.messages import End, RunOutcome
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.shells.ephemeral import EphemeralService
from peloton.runtime.vocabulary import Key

Order = m.StartRuns | m.StopRuns | m.ForgetRuns | m.ListRuns | m.PingBackend
"""What hosts send to a backend."""

HostsOrder = m.AddHost | m.RemoveHost
"""What an operator sends to a backend whose hosts are configured."""

Report = (
    m.BackendUp | m.BackendDown | m.HostAppeared | m.HostLeft
    | m.RunsStarted | m.RunsEnded | m.RunsListed
)  # fmt: skip
"""What a backend sends to hosts."""

Tell = Callable[[Iterable[Envelope]], None]
"""Takes reports to their hosts, from any thread."""

Trouble = Callable[[str, str], None]
"""Takes what is wrong, by the name of what it is wrong with; empty when nothing is any more."""


class Backend(EphemeralService, Protocol):
    """A backend that is local to the daemon, as the assembly wires it."""

    @property
    def key(self) -> Key:
        """Its address."""

    def start(self, tell: Tell, trouble: Trouble | None = None) -> None:
        """Begin. Orders that came before are dropped; hosts compare after it."""

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope]:
        """Orders, in their order; reports. More reports may come by `tell` at any time."""

    def stop_all(self, grace_s: float) -> bool:
        """End every run and wait for it; whether all have ended."""

    def close(self) -> None:
        """Let go; what runs outside of this process runs on."""


POISON = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What reading an order raises that has in it what no order of ours has."""


def cannot_be_ordered(run: str, why: object, *, reason: str) -> m.RunEnd:
    """The end of a run whose order makes no sense."""
    text = f"{type(why).__name__}: {why}" if isinstance(why, POISON) else str(why)
    return m.RunEnd(
        run, RunOutcome(End.FAILED, reason=reason, message=f"cannot be ordered: {text}")
    )
