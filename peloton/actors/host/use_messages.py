"""What a host tells its backend of its use, and what that answers.

A host is in use, drains, or is out of use, by the order of an operator. Whoever shares the machine
with us should know it as well; a backend that shares it with nobody answers at once. The message is
absolute, and repeated until it is answered. It must not concern a single run.
"""

from __future__ import annotations

import enum

from peloton.runtime.vocabulary import Key, Message, Value


class HostUse(enum.IntEnum):
    """What a host is for, now."""

    IN_USE = 0
    DRAINING = 1  # nothing more should be placed there, by anybody
    OUT_OF_USE = 2  # nothing runs there; a person may do what they like to the machine


class UseAtBackend(Value, frozen=True, gc=False, array_like=True):
    """What the backend is to know of the use, and what it has answered. `number`: of changes so
    far; `told`: up to which of them it has answered; `text`: why it could not do the last."""

    wanted: HostUse = HostUse.IN_USE
    number: int = 0
    told: int = 0
    text: str = ""

    @property
    def open(self) -> bool:
        """Whether the backend has still to answer."""
        return self.told < self.number


class SetUse(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: this is my use now. Answered with `UseSet`, also where there is nobody to be
    told; a backend that cannot find that out for now does not answer."""

    host: Key
    epoch: int
    use: HostUse
    number: int


class UseSet(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: who shares the machine knows of the use with this number; or `text` says why
    they will not."""

    number: int
    text: str = ""


USE_MESSAGES: dict[int, type] = {131: UseSet}
"""Those of the host, beyond `messages.MESSAGES`."""
