"""The real world behind the ports: processes, the bus between shards, files, the clock.

`files` carries out what a store asks of its disk.
"""
