"""A training or a recovery at one peer: the protocol joined to a method and a store."""
