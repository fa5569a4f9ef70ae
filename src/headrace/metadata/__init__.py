"""The metadata state machine: streams, topics, users, permissions, tokens and consumer groups."""
