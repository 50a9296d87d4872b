"""Who a peer is: its own keys, everybody's public ones, invitations, and private files."""
