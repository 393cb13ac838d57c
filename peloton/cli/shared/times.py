"""Moments and lengths of time as tables show them: UTC, whole seconds.

Must not know which zone the reader is in.
"""

from __future__ import annotations

from datetime import UTC, datetime


def moment_text(at: float) -> str:
    """Seconds since 1970 as text; empty for 0, which stands for never."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""


def span(seconds: float) -> str:
    """A length of time for people."""
    whole = max(round(seconds), 0)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"
