"""The chaos harness: storms in which a cluster, or an extension of it, is put to the test."""
