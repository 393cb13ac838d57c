"""Orders of hosts on their way into the conversation: some wait for secrets, or behind others.

Orders that change runs come in the order in which their host gave them, whatever waits: a kill or a
list that overtook a launch would tell of a run that is yet to come, and an end that is forgotten
before a repeated launch is looked at would let the run begin twice. Orders that wait when the
subscription is over are void, as hosts compare after the next one. Values of secrets are not kept.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import RemoveVolumes
from peloton.backends.mesos.conversation import Conversation
from peloton.backends.port import Order
from peloton.backends.secrets_first import SecretsFirst, SecretValues, wanted_of
from peloton.runtime.vocabulary import Key

_IN_TURN = m.StartRuns | m.StopRuns | m.ForgetRuns | m.ListRuns | RemoveVolumes


class HostOrders:
    """The orders of one link. `lock` is the conversation's; `_late` is called without it."""

    def __init__(
        self,
        talk: Conversation,
        secrets: SecretsFirst,
        *,
        lock: threading.Lock,
        clock: Callable[[], float],
    ) -> None:
        self._talk, self._secrets, self._lock, self._clock = talk, secrets, lock, clock
        self._waiting: Counter[Key] = Counter()
        self._subscription = 0

    def take(self, order: Order, *, then: Callable[[], None]) -> None:
        """Obey an order now, or once it need not wait any more.

        `then` is called after an order that waited, from another thread.
        """
        wanted = wanted_of(order) if isinstance(order, m.StartRuns) else {}
        if not wanted and not (self._waiting[order.host] and isinstance(order, _IN_TURN)):
            self._talk.ordered(order, self._clock())
            return
        self._waiting[order.host] += 1
        late = partial(self._late, order, number=self._subscription, then=then)
        self._secrets.then(order.host, late, wanted=wanted)

    def cut_off(self) -> None:
        """Void the orders that wait: the subscription is over."""
        self._subscription += 1

    def _late(
        self, order: Order, values: SecretValues, *, number: int, then: Callable[[], None]
    ) -> None:
        with self._lock:
            self._waiting[order.host] -= 1
            if not self._waiting[order.host]:
                del self._waiting[order.host]
            if number != self._subscription:
                return
            self._talk.ordered(order, self._clock(), values=values)
        then()
