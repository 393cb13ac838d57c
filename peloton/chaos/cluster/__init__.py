"""The parts of the harness that know jobs, hosts and their clients.

A storm (`storm.py`) is drawn from a seed, played in a `world`, with the sorts of `work` that
clients and operators do, and judged by `rules`; `faults.py` and `tiny.py` have the faults and the
limits it may draw, `points.py` and `nemeses.py` try every death and every lost message. A seed
means the same storm for ever: what is added draws from streams of its own.
"""
