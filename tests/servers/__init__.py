"""Real servers for tests and for `script/services`: ZooKeeper and Cassandra on loopback.

They come from Maven Central (`pom.xml`, `cache.py`), one process each (`process.py`). Nothing here
may listen beyond loopback, and no test may leave a server behind.
"""
