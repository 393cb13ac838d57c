"""What is said of hosts that fail a check: every check has words."""

from __future__ import annotations

from peloton.gateway.ops.host_rules import RULES
from peloton.placement.reasons import CHECK_REASONS


def test_every_check_of_a_placer_has_words_and_a_remedy() -> None:
    silent = [reason for reason in CHECK_REASONS if reason not in RULES]
    assert not silent, "say in RULES of gateway/ops/host_rules.py what fails, and what would help"
