"""Real peers under stress: crashes and cheats by a seeded schedule, and mutated messages."""
