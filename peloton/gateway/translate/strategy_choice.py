"""The strategy that ranks hosts for a job: chosen by the request, or by the daemon's file.

The name goes into the job's spec; an unknown one is refused by its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from peloton.actors.job.spec import JobSpec
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.translate.bad_field import BadField
from peloton.placement.strategies import PACK, SPREAD, STRATEGIES, Strategy
from peloton.settings.placement import BY_TYPE

STRATEGY_LABEL = "peloton.strategy"
BY_ENUM = {
    job.PLACEMENT_STRATEGY_PACK_HOST: PACK.name,
    job.PLACEMENT_STRATEGY_SPREAD_JOB: SPREAD.name,
}


class StrategyChoice(NamedTuple):
    """The strategies that are installed here, and the default of each type of job."""

    table: Mapping[str, Strategy] = STRATEGIES
    by_type: Mapping[str, str] = BY_TYPE

    def chosen(self, spec: JobSpec, sent: job.JobConfig) -> JobSpec:
        """Return the spec with its strategy: that of its label, of its field, or of its type.

        Raises BadField. A job that is spread stays so: hosts without an instance of it come first,
        and among those the strategy decides.
        """
        name = spec.strategy
        if name and name not in self.table:
            at = [key for key, _ in spec.labels].index(STRATEGY_LABEL)
            raise BadField(f"config.labels[{at}]", f"{STRATEGY_LABEL}: {self.unknown(name)}")
        if not name:
            default = self.by_type.get(spec.job_type, PACK.name)
            name = BY_ENUM.get(sent.placementStrategy, default)
        # What a job without a name has by its field: so it is written as it always was.
        plain = SPREAD.name if spec.spread else PACK.name
        return spec.ranked_by("" if name == plain else name)

    def unknown(self, name: str) -> str:
        """Return the text about a name that is no strategy."""
        known = ", ".join(sorted(self.table))
        return f"unknown placement strategy {name!r}: there are {known}"


STANDARD_STRATEGIES = StrategyChoice()
