"""What all commands stand on: options, the session, what people type, and how answers are shown.

A change here shows in every command and its recorded texts, so make it for all or for none.
`output.py` prints what others have made; `session.py` gives refusals the texts of the original;
`exits.py` has the exit codes, which scripts know. Nothing here may import a command's room.
"""
