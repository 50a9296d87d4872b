"""Experiments: config, runs, result records, tables and figures."""
