"""Shells: pykka actors around the pure core. They wait, call the core and tell; no more."""
