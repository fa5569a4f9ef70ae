"""Viewstamped Replication: one replica of one group, event in, effects out, split by phase."""
