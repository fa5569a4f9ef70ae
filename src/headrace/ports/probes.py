"""Named probes in rare branches: a long simulation must reach each of them."""


class Probes:
    """Counts how often each probe was hit; the counters of a node use them too."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def hit(self, name: str) -> None:
        """Count one hit."""
        self.counts[name] = self.counts.get(name, 0) + 1
