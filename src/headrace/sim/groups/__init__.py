"""The workload of groups alone: planes of replicas over one journal, without partitions.

`world` is the entry; `options` draws what a seed decides.
"""
