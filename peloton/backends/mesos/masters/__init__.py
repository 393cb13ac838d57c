"""Connections to masters and agents of Mesos: elections, the stream, calls.

Every connection to Mesos is made from here, to whichever master leads and wherever an agent
listens, or an error says why not. Runs and hosts are not known here: `runs` must not be imported.
"""
