"""The operator's commands on a machine or a store: doctor, schema, journal, backup, features.

The commands need no running daemon, and read journals without owning them. Commands of clients are
in `cli`.
"""
