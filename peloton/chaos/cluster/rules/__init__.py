"""The rules of every storm: each module has one rule, or a ledger that several rules read.

A rule reads committed facts, answers and processes, and names its number if it is broken (see
docs/rules_and_faults.md). It must not change what it reads, or the storm would be another one. A
new rule needs a planted fault that trips it. Rules that need work of a certain sort stand beside
that, in `work`.
"""
