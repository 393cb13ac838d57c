"""The commands of jobs and their tasks: made from a file or typed, asked about, stopped.

`job.py` and `task.py` are the nouns, the modules named after them their longer verbs. `run` and
`map` make a job of a command line (`batch.py` has what both share) and stay with it. Options and
texts that the original had keep their form; `ops.py` and what `run` and `map` print are Peloton's
own. The commands of services may import these, not the reverse.
"""
