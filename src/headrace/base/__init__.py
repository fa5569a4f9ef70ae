"""Words everyone uses: ids, limits, placement, checksums, the seeded generator."""
