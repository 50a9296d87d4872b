"""Bytes between peers: gRPC over mutual TLS."""
