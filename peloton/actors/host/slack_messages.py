"""The message by which a backend tells a host of slack. It must not concern a single run."""

from __future__ import annotations

from peloton.runtime.vocabulary import Message


class SlackReported(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: so much of the cpu of its runs is not used, and may be given to others; in
    millionths. It is absolute, and told when it has changed. None: it is not measured any more."""

    slack: int | None


SLACK_MESSAGES: dict[int, type] = {25: SlackReported}
"""Those of the host, beyond `messages.MESSAGES`."""
