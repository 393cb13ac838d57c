"""What several benchmarks share; no benchmark itself, so `script/bench` does not list it."""
