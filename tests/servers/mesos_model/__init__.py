"""One model of a Mesos master with its agents, for one framework, at two speeds.

In virtual time the plays of `tests/backends/mesos/simulated` drive it; where time stands still it
is what the scripted master (`tests/servers/scripted_master.py`) answers with over HTTP, and is
there held against what a real master said. To be touched: `Master`, `Answers`, `Agent`, `Times`,
`Programs`.
"""
