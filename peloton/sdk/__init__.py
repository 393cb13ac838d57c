"""The Python client: `from peloton.sdk.client import Client`.

This file imports nothing, so that a program which needs one light module does not load gRPC.
"""
