"""The history of a simulation, in plain files."""
