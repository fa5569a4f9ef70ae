"""The metadata state machine: streams, topics, partitions, consumer groups, users, tokens."""
