"""The rights of schedules' owners at the moment: an ephemeral service that schedules ask.

Turns a principal that was journaled, by the users and rules in force at the moment, into the reason
why it may create no job in a pool. No answer is kept: the next moment is judged anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from peloton.actors.schedule.messages import RIGHTS, AskRights, RightsTold
from peloton.gateway.access.access_table import SCHEDULES
from peloton.gateway.access.basic_users import BasicUsers
from peloton.gateway.access.guard import CallCode
from peloton.gateway.access.permissions import Permissions
from peloton.gateway.server.audit import AuditEntry
from peloton.runtime.core.principal import BASIC, Principal, principal_of
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.ephemeral import StatelessService
from peloton.settings.permissions_file import Permission

CREATE = f"/{SCHEDULES}/CreateSchedule"
MOMENT = f"{SCHEDULES}.moment"
"""In the audit log: no method, as nobody called."""


class OwnerRights(StatelessService):
    """The ephemeral service behind `rights/schedules`."""

    key = RIGHTS

    def __init__(
        self,
        permissions: Permissions,
        users: Callable[[], BasicUsers | None],
        *,
        denied: Callable[[AskRights, str], object],
    ) -> None:
        """Set up. `users` returns those in force; `denied` takes refused moments."""
        self._permissions = permissions
        self._users = users
        self._denied = denied

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Answer questions."""
        answers = []
        for envelope in envelopes:
            asked = envelope.message
            if isinstance(asked, AskRights):
                why = self.why_not(asked)
                if why:
                    self._denied(asked, why)
                answers.append(Envelope(asked.schedule, RightsTold(asked, why), sender=self.key))
        return answers

    def why_not(self, asked: AskRights) -> str:
        """Return why the owner may no longer create jobs in the pool; empty if they may."""
        who, users = principal_of(asked.owner), self._users()
        if who.how == BASIC and users is not None:
            user = users.named(who.name)
            if user is None:
                return f"{_called(who)}, its owner, is no user any longer"
            if not users.permits(user.role.name, CREATE):
                return f"{_called(who)}, its owner, may no longer create schedules"
            who = who._replace(role=user.role.name)
        rights = self._permissions.rights_of(who)
        if rights is None or rights.may(Permission.SUBMIT, asked.pool_path):
            return ""
        return f"{_called(who)}, its owner, may no longer create jobs in pool {asked.pool_path}"


def audit_entry(asked: AskRights, why: str) -> AuditEntry:
    """Return the audit line of a moment that made no job."""
    schedule = asked.schedule.partition("/")[2]
    return AuditEntry(
        time.time(),
        principal_of(asked.owner),
        MOMENT,
        {"schedule": schedule, "pool": asked.pool_path},
        hidden=False,
        code=CallCode.PERMISSION_DENIED.value[0],
        details=why,
        answer=None,
        reads=None,
    )


def _called(who: Principal) -> str:
    name = who.name or "a client that gave no name"
    return name if who.authenticated else f"{name} (unverified)"
