"""Many experiments: cached, in several processes, and their numbers in one file."""
