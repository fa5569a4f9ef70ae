"""On-disk formats and recovery: journal, superblock, checkpoint.

`store` is the entry point: it opens a store from its files, accepts what must become durable, and
returns the effects that the disk must carry out.
"""
