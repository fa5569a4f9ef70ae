"""What a shard knows about the bus: whom frames are for, and which were dropped."""
