"""The protocol between peers: messages and the time come in, effects go out. No input/output."""
