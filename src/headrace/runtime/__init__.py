"""The real world behind the ports: the pump, files, passwords, the host, the bus."""
