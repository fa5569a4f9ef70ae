"""What the store asks of the disk, in order, until it is taken."""

from itertools import pairwise

from headrace.ports.disk import DiskEffect, WriteJournal
from headrace.ports.probes import Probes
from headrace.ports.recovered import Finding


class Outbox:
    """Collects effects and findings; gives out tokens, each once."""

    def __init__(self) -> None:
        self.probes = Probes()
        self._effects: list[DiskEffect] = []
        self._findings: list[Finding] = []
        self._token = 0

    def new_token(self) -> int:
        """Give a token that no other effect of this store has."""
        self._token += 1
        return self._token

    def put(self, effect: DiskEffect) -> None:
        """Add an effect behind all others."""
        self._effects.append(effect)

    def find(self, finding: Finding) -> None:
        """Add a finding."""
        self._findings.append(finding)

    def take_effects(self) -> list[DiskEffect]:
        """Give all effects, once."""
        effects, self._effects = self._effects, []
        return effects

    def check(self, placed: int) -> None:
        """Assert that the records to be written end with the one that was placed last."""
        writes = [effect for effect in self._effects if isinstance(effect, WriteJournal)]
        for before, after in pairwise(writes):
            assert before.sequence + 1 == after.sequence, "records are written in their order"
            assert (before.file, before.position) != (after.file, after.position), "each once"
        assert not writes or writes[-1].sequence == placed, "a placed record is written"

    def take_findings(self) -> list[Finding]:
        """Give all findings, once."""
        findings, self._findings = self._findings, []
        return findings
