"""One whole shard without I/O: pump, router, placement, reconciler, and the order of effects.

Here alone consensus, storage and the state machines meet.
"""
