"""Shells: pykka actors around the pure core, which wait, call the core and send."""
