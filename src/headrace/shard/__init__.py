"""One whole shard without I/O: pump, router, placement, reconciler, and the order of effects."""
