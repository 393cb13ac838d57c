"""Real servers for tests and for `script/services`: ZooKeeper and Cassandra on loopback, and Mesos.

The first two come from Maven Central (`pom.xml`, `cache.py`), one process each (`process.py`).
Mesos is found on the machine (`mesos_home.py`), and has a scripted master beside it. Nothing here
may listen beyond loopback, and no test may leave a server behind.
"""
