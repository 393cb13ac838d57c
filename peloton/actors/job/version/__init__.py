"""The owner of one earlier spec of a job."""
