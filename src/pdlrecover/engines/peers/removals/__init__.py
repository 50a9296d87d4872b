"""Removals: who may propose one, when it passes, and what it must not reveal."""
