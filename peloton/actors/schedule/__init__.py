"""A schedule: it makes a job at each of its moments."""
