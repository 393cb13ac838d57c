"""R1, R2, R9, R10: the memory of actors, and the answers to clients, are what the journal has.

Turns the shadow ledger, and a cluster or a history, into a `Contradiction` or nothing.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobCreated
from peloton.actors.resources import Resources
from peloton.chaos.cluster.rules.shadow_ledger import ShadowLedger
from peloton.chaos.cluster.world.history import Asked, Operation
from peloton.chaos.cluster.world.view import ClusterView
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key


def held_by_lots(view: ClusterView) -> dict[Key, Resources]:
    """What the lots of each pool hold, by the actors in memory."""
    used: dict[Key, Resources] = {}
    for lot in view.cells("lot").values():
        pool, need = lot.shape.pool, lot.shape.resources
        used[pool] = used.get(pool, Resources()) + need.times(len(lot.admitted))
    return used


def ledger_equals_the_actors(ledger: ShadowLedger, view: ClusterView) -> None:
    """Check R10: the sums of all journaled facts are those of the actors in memory."""
    used = held_by_lots(view)
    for pool in sorted({**used, **ledger.use}):
        live, journaled = used.get(pool, Resources()), ledger.use.get(pool, Resources())
        if live != journaled:
            raise Contradiction(f"R10 {pool}: its lots hold {live}, by the journal {journaled}")
    for key, host in view.cells("host").items():
        if host.used != ledger.hosts[key].used:
            raise Contradiction(f"R9 {key} uses {host.used}, not {ledger.hosts[key].used}")


def answers_equal_the_journal(ledger: ShadowLedger, history: list[Operation]) -> None:
    """Check R1, R2: what was acknowledged is in the journal, what was refused is not.

    The requests of a deleted job are deleted with it, so a late repeat there may be refused.
    """
    for number, operation in enumerate(history, start=1):
        if not operation.known or operation.what in (Asked.GET, Asked.LIST):
            continue
        _is_journaled(ledger, number, operation=operation)


def _is_journaled(ledger: ShadowLedger, number: int, *, operation: Operation) -> None:
    """Check one operation. Clients make its request key from its number in the history."""
    journaled = (operation.job, f"{operation.client}-{number}") in ledger.requests_ever
    if isinstance(operation.answer, JobCreated) and not journaled:
        raise Contradiction(f"R1 acknowledged, and in no journal: {operation}")
    # One that may succeed later is not the last word: another copy may have been carried out.
    last_word = operation.refused and not operation.answer.again
    if last_word and journaled and operation.job not in ledger.deleted_ever:
        raise Contradiction(f"R2 refused, and in the journal: {operation}")
