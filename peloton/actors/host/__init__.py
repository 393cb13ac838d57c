"""A host: its capacity, and the ledger of the runs it holds. The only place that grants room."""
