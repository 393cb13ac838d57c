"""The operator's commands on a machine or a store: doctor, schema, journal, backup, features.

They need no running daemon, and own no journal that they read. Commands of clients stand in `cli`.
"""
