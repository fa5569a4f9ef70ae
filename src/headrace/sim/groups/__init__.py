"""The workload of groups alone: planes of replicas over one journal, without partitions.

`workload` is the entry; `options` draws what a seed decides.
"""
