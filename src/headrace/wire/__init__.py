"""Bytes to values and back: frames, headers, commands, replies, batches, error codes. Sans-IO."""
