"""Consumer groups: membership and assignment as pure functions over values."""
