"""A backend that exists once in a cluster: it decides who subscribes to an outside engine."""
