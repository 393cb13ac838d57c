"""For tests against a scheduler or an extension: a cluster as a fixture, scripts, assertions.

pytest finds the fixture `cluster` (`cluster.py`): the whole control plane in the test's process, in
virtual time. What a test says beside it is in `behaviour.py` and `assertions.py`.

This file imports nothing: pytest loads `plugin.py`, and so this package, in every run.
"""
