"""Formats and decisions of the disk: journal, superblock, checkpoint, recovery.

`store` is the door: it opens what a disk returned, takes what must become durable, and says what
the disk must do.
"""
