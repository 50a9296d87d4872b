"""What results say: means over seeds, promises kept or not, and a summary in sentences."""
