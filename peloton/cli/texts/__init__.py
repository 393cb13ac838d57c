"""Jobs, tasks and services as rows and sentences, their progress, and their outputs.

What several folders of commands show in the same way; the columns and words are the original's if
it had such a table, so that scripts which cut them go on working. No daemon is asked here, except
by `outputs.py`, which reads what is printed.
"""
