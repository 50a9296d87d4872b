"""The history of a real peer, encrypted and chained, in one LMDB file."""
