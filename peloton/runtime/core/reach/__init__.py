"""Reachability in a fleet, and who stands aside because of it; pure.

`contacts.py` is what one daemon says of its links, `standing.py` what each computes alike from the
reports of all: a change of it makes daemons of two versions compute different things during an
upgrade. Shards and owners are the affair of `owning`, links that of `links`.
"""
