"""The partitions that a shard owns: made and removed as metadata says, stored, flushed, retained.

It may import `consensus`, whose data plane drives the groups of the partitions. It knows nothing of
clients and their requests.
"""
