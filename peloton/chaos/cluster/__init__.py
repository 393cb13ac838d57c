"""The parts of the harness that know jobs, hosts and their clients."""
