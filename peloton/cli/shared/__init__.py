"""What all commands use: options, the session, what people type, and how answers are shown.

A change here shows in every command and its recorded texts, so make it for all or for none.
`output.py` prints answers; `session.py` gives refusals the texts of the original; `exits.py` has
the exit codes, which scripts know. The folders of commands import this one, never the reverse.
"""
