"""One whole shard without I/O, in five rooms, and the order of their effects.

```
logins > front > owned > consensus > bus   each may import those to its right
```

Here alone consensus, storage and the state machines meet; `shard.py` joins the rooms.
"""
