"""The blocking client: the session driven over a socket, its producer and its consumer."""
