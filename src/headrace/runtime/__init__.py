"""The real world behind the ports: processes, the bus between shards, files, the clock."""
