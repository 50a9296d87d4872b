"""One large simulation over several processes or machines, by Ray."""
