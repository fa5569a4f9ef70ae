"""Formats and decisions of the disk: journal, segments, index, superblock, snapshot, recovery."""
