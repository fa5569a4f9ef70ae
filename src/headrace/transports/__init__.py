"""How bytes enter and leave a node: TCP, WebSocket, QUIC, HTTP."""
