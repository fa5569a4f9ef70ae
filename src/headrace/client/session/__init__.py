"""One session with a server, without I/O: its settings, connection, requests and retries."""
