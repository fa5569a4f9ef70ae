"""The bus of a node: lanes and descriptors between its processes, behind `ports/bus.py`.

```
ends         socket pairs are made before the spawn, described to a child, and taken up there
lane         one direction of a socket: a bounded queue of frames, or a reader that cuts them
bus          the lanes of one member to all others, for the pump
descriptors  accepted sockets, handed from shard 0 to another shard
```
"""
