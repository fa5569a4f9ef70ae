"""Named marks in rare branches: a long simulation must reach each of them."""


class Probes:
    """Counts how often each mark was reached; also what a node's counters are made of."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def hit(self, name: str) -> None:
        """Count one passage."""
        self.counts[name] = self.counts.get(name, 0) + 1
