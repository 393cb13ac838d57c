"""A host: its capacity, and the ledger of its runs. Only a host actor grants resources."""
