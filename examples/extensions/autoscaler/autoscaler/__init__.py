"""Autoscalers: the kind `autoscaler` of a cluster sets how many instances a service has."""
