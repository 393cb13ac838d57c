"""The port of backends: the promises of every backend that runs the orders of hosts.

Names the messages that cross it and what each of them guarantees. `tests/contracts/test_backend.py`
checks all backends against what is written here.

A backend that is local to the daemon (processes, simulated runs) is an ephemeral service with the
key `backend/<name>`, which each daemon with hosts has of its own; its memory is not journaled. One
that exists once (a subscription to an outside engine) is an actor with the key `engine/<name>`, in
the group hostmgr with `BACKEND_MESSAGES`, and its owner is found like that of any other actor.
Hosts cannot distinguish the two. What has the kind of an actor goes to its shard, so the kinds of
their keys differ.

What a backend must do:

- **Attempts at least once, results at most once.** A run is named by its run id, which is the
  backend's own task id too. `StartRuns` may come twice: a run that is known is not started again,
  but reported again (`RunsStarted`, or `RunsEnded`). An end is reported with its outcome, and again
  whenever it is asked for, until `ForgetRuns` confirms that it is journaled.
- **Listing.** `ListRuns` is answered with all runs of the host that the backend knows, ended
  ones included until they are forgotten (`RunsListed`); it carries the `asked_at` of its request.
  What the host knows to run comes by name or, in newer requests, as sets of members; a backend may
  list what runs in the same form.
  A list that no host requested carries -inf: it shows what runs, but not that a run is missing.
  A list must not overtake an earlier order of the same host. An end that cannot be listed may
  follow the list as `RunsEnded`.
- **Times.** Where a backend knows when a process started or ended, it says so, also in lists: the
  host takes these times where it learns of them late.
- **Epochs.** Orders carry the epoch of the host's shard. Once an order with a higher epoch was
  obeyed, those with a lower one are not; they are not answered either, as nobody waits for them.
  `ForgetRuns` carries none: it leaves its owner only after the end is journaled.
- **Kills.** `StopRuns` ends a run with SIGTERM first, with SIGKILL after the grace. A run that has
  ended is reported again. For an unknown run the host gets a request to compare (`BackendUp`).
- **Run limits.** A backend that can ends a run itself once it has taken as long as its spec or the
  last `LimitRuns` says, also while no daemon lives, and gives the reason `DEADLINE_EXCEEDED`. One
  that cannot leaves it to the task, which orders the end.
- **Health.** A run whose order has a check, or that `ListRuns.checked` names, is checked while it
  runs, until it is to end. A backend need not remember which runs are checked: whoever has
  forgotten asks its hosts to compare.
- **Changes.** Of a run that goes on only changes are reported (`RunsChanged`): of its health, and,
  where it has several containers and a backend knows how far each has come, of these. Each says all
  that is known, has a number of its own, and is repeated until `ChangesNoted` confirms that. A
  confirmation of another number is answered with the last change once more.
- **Volumes.** A run whose spec has a volume has the directory of its instance on this host, which
  is made with the first of its runs and outlives all of them. `RemoveVolumes` removes directories,
  and is answered with `VolumesRemoved` once they are out of reach of later runs, also where there
  are none.
- **Use.** `SetUse` says whether a host is in use, drains, or is out of use. Whoever shares the
  machine with us is to know it; where nobody does, `UseSet` answers at once. It is absolute: the
  backend compares, and answers with the number of the order once it is so, or with a text if it
  will not be. A machine that is out of use may leave; that is no reason not to answer.
- **Ports.** A backend that shares the machine's ports with other programs tries those of a run
  before it starts it. Where one is in use it does not start the run, and says so (`PortsInUse`),
  with all that are in use as far as it knows; the host orders the run again with others, or not at
  all. It tells when that has changed, and again with each list.
- **Identity.** A keeper of runs that outlives the daemon names itself in `RunsListed.keeper`. An
  order of `StartRuns` for another keeper is not obeyed, but answered with a list.
- **Incarnations.** Where another machine may come under the name of one that is only out of reach,
  with what runs on it, each has a name of its own, in `RunsListed.incarnation`. What the host had
  accepted before and the list of another one lacks is lost, not ordered again. An order of
  `StartRuns` for another incarnation is not obeyed, but answered with `BackendUp`.
- **Sender.** Every report has the key of its backend as sender: a host ignores reports of another
  backend than its own, and does not change its backend while it holds runs.
- **Up and down.** `BackendUp` means that the backend of the host is available: sent at the start,
  after every outage and after every reset, because orders may have been lost. `BackendDown` gives
  the reason of an outage, and answers any order that cannot be obeyed for now. `PingBackend` is
  always answered with one of the two.
- **Hosts come and go.** `HostAppeared` announces a host with its capacity, also one that was never
  configured; it is repeated until the host gives an order. One that has left is told `BackendDown`:
  until it appears again its orders are not obeyed, each is answered so, and nothing is reported of
  it. The runs it had are listed when it reappears. An operator adds and removes machines
  (`HostsOrder`) only at a daemon that is alone, and until it restarts; in a fleet both are refused,
  because the host may live at a daemon whose backend does not learn of it.
- **Poison.** An invalid order for one run ends that run, with a reason, and no other. One that
  cannot be read at all may raise: the shell resets the backend, which then asks every host to
  compare.

Why these are not two messages, a desired and an observed state: a poll (`ListRuns`, `RunsListed`)
is such a snapshot already, and what lies between polls are deltas, as a snapshot costs as much as
all runs of a host. Absolute states would need versions that every side journals, a ledger that
says how a run ends, and an order between their parts (volumes go after their runs). Tried and
counted, it saved 1 % of the statements, for messages nobody can read without knowing all parts.

Reports are lost while a shard moves to another owner. Nobody repeats them but for the two
exceptions above: the host sends its request again, because it knows which report is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import ChangesNoted, LimitRuns, RunsChanged
from peloton.actors.host.machine_messages import (
    AddHost,
    PortsInUse,
    RemoveHost,
    RemoveVolumes,
    SetUse,
    SlackReported,
    UseSet,
    VolumesRemoved,
)
from peloton.actors.task.messages import End, RunOutcome
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.shells.ephemeral import EphemeralService
from peloton.runtime.vocabulary import Key

Order = (
    m.StartRuns | m.StopRuns | m.ForgetRuns | m.ListRuns | m.PingBackend | ChangesNoted
    | RemoveVolumes | SetUse | LimitRuns
)  # fmt: skip
"""What hosts send to a backend."""

HostsOrder = AddHost | RemoveHost
"""What an operator sends to a backend whose hosts are configured."""

Report = (
    m.BackendUp | m.BackendDown | m.HostAppeared | SlackReported | RunsChanged | m.RunsStarted
    | m.RunsEnded | m.RunsListed | VolumesRemoved | UseSet | PortsInUse
)  # fmt: skip
"""What a backend sends to hosts."""

Tell = Callable[[Iterable[Envelope]], None]
"""Takes reports to their hosts, from any thread."""

ReportProblem = Callable[[str, str], None]
"""Takes (component, problem); the problem is empty when the component is well again."""


class Backend(EphemeralService, Protocol):
    """A backend that is local to the daemon, as the assembly wires it."""

    @property
    def key(self) -> Key:
        """The address of the backend, which its reports have as sender."""

    @property
    def prefix(self) -> Key:
        """The address for orders: the backend's own, or that of a link to an outside engine."""

    def start(self, tell: Tell, trouble: ReportProblem | None = None) -> None:
        """Begin. Orders that came before are dropped; hosts compare after it."""

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope | Reply]:
        """Handle orders in sequence; return reports and replies. `tell` may take more any time."""

    def stop_all(self, grace_s: float) -> bool:
        """End every run and wait; return whether all have ended."""

    def close(self) -> None:
        """Release resources; runs outside of this process go on."""


@runtime_checkable
class LeasesFiles(Protocol):
    """A backend that can keep the files of a job's ended runs while somebody reads them."""

    def lease(self, job: str, for_s: float) -> bool:
        """Keep the files for so many seconds; return whether that is possible. For any thread."""


POISON = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What reading an invalid order may raise."""


def cannot_be_ordered(run: str, why: object, *, reason: str) -> m.RunEnd:
    """Return the end of a run whose order is invalid."""
    text = f"{type(why).__name__}: {why}" if isinstance(why, POISON) else str(why)
    return m.RunEnd(
        run, RunOutcome(End.FAILED, reason=reason, message=f"cannot be ordered: {text}")
    )
