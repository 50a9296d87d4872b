"""One experiment: its config, how it is run, and what is measured."""
