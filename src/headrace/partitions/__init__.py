"""The partition state machine: append, poll, consumer offsets, retention."""
