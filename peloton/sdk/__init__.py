"""The Python client: `from peloton.sdk.client import Client`.

Imports nothing, so that whoever needs one light module of it does not pay for gRPC.
"""
