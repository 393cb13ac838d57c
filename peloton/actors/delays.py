"""Pure arithmetic of delays: backoff and throttle."""

from __future__ import annotations

from peloton.pauses import Pauses

THROTTLE = Pauses(30.0, 3600.0)
"""Before the next attempt of a service's instance: 30, 60, 120 … 3600 s."""
HEALTHY_AFTER_S = 600.0
"""A service that has run for so long begins anew with short delays, where its job says nothing."""
