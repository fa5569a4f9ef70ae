"""Where core and simulated world are joined: one seed decides network, disk, clock and load.

`world` runs a workload: `groups` alone, or whole `nodes`.
"""
