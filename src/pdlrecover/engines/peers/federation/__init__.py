"""What the peers of a federation agree on: the file, the plan in it, and who signed it."""
