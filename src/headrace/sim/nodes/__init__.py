"""The workload of whole nodes: shards with journals, segments and clients, alone and in clusters.

`workload` is the entry; `options` says what a seed decides.
"""
