"""Handwritten digits: a Flower app."""
