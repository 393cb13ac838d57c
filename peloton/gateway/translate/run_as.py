"""As which user the tasks of a caller may run.

The principal of a call, and the user that a spec names, become what the job's commands carry, or
NotPermitted. The keeper decides later which accounts its machine has.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.runtime.core.principal import Principal

OWNERS = ("token", "socket")
"""Ways in which a caller proves to be the user who runs the daemon."""
NAMED = ("basic", "tls")
"""Ways in which a caller proves a name of its own."""


class NotPermitted(Exception):
    """The caller may not run tasks as that user; `field` is the path in the request."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class RunAs(NamedTuple):
    """What a caller may choose: any user, or only its own name, or none."""

    any_user: bool = False
    caller: str = ""

    def check(self, user: str, field: str) -> None:
        """Raise NotPermitted if the caller may not name this user."""
        if not user or self.any_user or user == self.caller:
            return
        if self.caller:
            raise NotPermitted(field, f"{self.caller} may run tasks as {self.caller} only")
        text = "a caller that has not proven who it is may not choose the user of its tasks"
        raise NotPermitted(field, text)


UNKNOWN = RunAs()
"""For callers who have proven nothing."""


def run_as(principal: Principal) -> RunAs:
    """Return what this caller may choose."""
    caller = principal.name if principal.how in NAMED else ""
    return RunAs(principal.how in OWNERS, caller)
