"""Shells: pykka actors around the pure core. They wait, call the core and send; no more."""
