"""Who reaches whom in a fleet, and who stands aside because of it; pure."""
