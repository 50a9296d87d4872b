"""Real peers: one process per organisation, no server. See docs/peers-protocol.md."""
