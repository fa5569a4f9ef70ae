"""Simulates whole nodes: shards with their journals, segments and clients, alone and in clusters.

`world` is the entry; `options` says what a seed decides.
"""
