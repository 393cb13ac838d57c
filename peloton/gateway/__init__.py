"""gRPC servicers, one file per service: translate, ask, answer; nothing else."""
