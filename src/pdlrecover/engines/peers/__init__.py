"""Real peers: one process for each organisation, without a server."""
