"""What an operator sees of a running peer, and tells it."""
