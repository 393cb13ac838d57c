"""Moments and lengths of time as tables show them: UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_text(at: float) -> str:
    """Return seconds since 1970 as text; empty for 0, which means never."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""


def span(seconds: float) -> str:
    """Return a length of time for people."""
    whole = max(round(seconds), 0)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"
