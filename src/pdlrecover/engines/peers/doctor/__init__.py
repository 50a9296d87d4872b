"""What keeps a peer from working, before it is started and while it runs."""
