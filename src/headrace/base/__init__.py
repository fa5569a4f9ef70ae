"""Words everyone uses: ids, limits, checksums, the seeded generator."""
