"""Jobs, tasks and services as rows and sentences, their progress, and their outputs.

What several rooms show in the same way; the columns and words are the original's where it had
such a table, so that scripts which cut them go on working. It must not ask a daemon, apart from
`outputs.py`, which reads what is printed, nor know which command it is shown by.
"""
