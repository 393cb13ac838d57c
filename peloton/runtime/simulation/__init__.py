"""The unchanged shells in virtual time. It must know no kind, and nothing here may sleep."""
