"""The real files behind the ports: a store's disk, segments, quarantine."""
