"""Who reaches whom in a fleet, and who stands aside because of it; pure.

`contacts.py` is what one daemon says of its links, `standing.py` what each finds alike from the
words of all: whoever changes it has daemons of two versions find different things during an
upgrade. It must not know shards or owners (`owning`), and opens no link (`links`).
"""
