"""The client for asyncio: the session driven on a loop, its producer and its consumer."""
