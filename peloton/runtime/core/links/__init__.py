"""The connection of two daemons: frames of a stream, parcels in order, and messages as bytes.

Daemons of two versions talk to each other during an upgrade: a field is only added at an end, and a
number is never used again. A parcel arrives once or not at all, whatever the stream does.
"""
