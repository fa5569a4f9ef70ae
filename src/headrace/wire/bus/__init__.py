"""The frames between the shards of one node: `docs/formats/bus.md`.

Clients and other nodes do not see this plane; only the envelope will cross a link.
"""
