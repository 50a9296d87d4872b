"""What results say: means over seeds, promises, sentences, and documents as plain data."""
