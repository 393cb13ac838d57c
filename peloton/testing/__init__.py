"""For tests against a scheduler or an extension: clusters as fixtures, scripts, assertions.

pytest finds the fixtures `cluster` (`cluster.py`: the whole control plane in the test's process, in
virtual time) and `fleet` (`fleet.py`: real daemons). What a test says beside them is in
`behaviour.py`, `assertions.py` and, with Hypothesis, `strategies.py`.

This file imports nothing: pytest loads `plugin.py`, and so this package, in every run.
"""
