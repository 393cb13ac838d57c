"""What must hold whoever does what: each module one rule, or the books that several rules look at.

A rule looks at committed facts, answers and processes, and says which number is broken (see
docs/rules_and_faults.md). It must not change what it looks at, and a new one needs a planted
fault that trips it. Rules that need work of a certain sort stand beside that, in `work`.
"""
