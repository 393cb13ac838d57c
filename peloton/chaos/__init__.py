"""The chaos harness: storms of faults against a cluster, or an extension of it."""
