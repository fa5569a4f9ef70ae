"""How messages are sent: gathered into batches, routed to a partition, or sent at once. No I/O."""
