"""How messages are read: the partitions of a consumer, its positions, its polls. No I/O."""
