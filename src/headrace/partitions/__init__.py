"""State machine: append, poll, offsets, retention.

`PartitionMachine` is one partition. Its committed batches lie in segment files, which it writes and
reads by the effects of `ports.segments`, and the newest also in memory. `DedupTable` knows which
requests of clients were applied.
"""
