"""Engines run a recovery method: in a simulation, or between real peers."""
