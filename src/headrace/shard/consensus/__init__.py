"""Consensus groups on one store: planes, checkpoints, timers, heartbeats between nodes, time.

The lowest room. It imports no other room, and knows neither clients nor partitions.
"""
