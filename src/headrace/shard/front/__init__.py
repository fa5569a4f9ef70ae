"""What clients ask, and what they are answered: connections, routes, queries, polls, waits.

It may import `owned` and `consensus`, to find partitions and hand requests to their groups. It does
not import `logins`: a shard without the metadata group has no logins of its own.
"""
