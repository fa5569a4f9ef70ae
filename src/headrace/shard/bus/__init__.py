"""What the shards of a node tell each other: the metadata, requests that are served elsewhere.

```
shard 0   feed  -> every commit, in order -> image   the others
home   forwards -> a request of its client -> guests  the owner of the partition, or shard 0
home  remote_sessions <- session orders <-   sessions_elsewhere  shard 0
```

A node of one shard has nothing of this room.
"""
