"""A backend that exists once in a cluster: who holds the subscription to an outside engine."""
