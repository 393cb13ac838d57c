"""What a backend tells a host of its machine: slack, and ports in use. It must not judge either."""

from __future__ import annotations

from peloton.runtime.vocabulary import Message


class SlackReported(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: so much of the cpu of its runs is not used, and may be given to others; in
    millionths. It is absolute, and told when it has changed. None: it is not measured any more."""

    slack: int | None


class PortsInUse(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: others use these ports, ascending: programs that are no runs, or runs of
    other hosts of the machine. It is absolute, and told when it has changed. `runs` were ordered
    with one of them, and not started: they need another port, or another host."""

    ports: tuple[int, ...]
    runs: tuple[str, ...] = ()


MACHINE_MESSAGES: dict[int, type] = {25: SlackReported, 161: PortsInUse}
"""Those of the host, beyond `messages.MESSAGES`."""
