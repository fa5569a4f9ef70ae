"""The effects and findings of a store, in order, until they are taken."""

from typing import TypeVar

from headrace.ports.disk import DiskEffect, ReadJournal, ReplaceFile, WriteBlock
from headrace.ports.probes import Probes
from headrace.ports.recovered import Finding

E = TypeVar("E", bound=DiskEffect)


class Outbox:
    """Collects effects and findings; issues tokens, each once."""

    def __init__(self) -> None:
        self.probes = Probes()
        self.effects: list[DiskEffect] = []  # those that nobody has taken yet
        self._findings: list[Finding] = []
        self._token = 0

    def new_token(self) -> int:
        """Return a token that no other effect of this store has."""
        self._token += 1
        return self._token

    def put(self, effect: DiskEffect) -> None:
        """Add an effect behind all others."""
        self.effects.append(effect)

    def find(self, finding: Finding) -> None:
        """Add a finding."""
        self._findings.append(finding)

    def take_effects(self) -> list[DiskEffect]:
        """Return all effects, each once."""
        effects, self.effects = self.effects, []
        return effects

    def waiting(self, kind: type[E]) -> list[E]:
        """Return the effects of a kind that were not taken yet, in order."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def check(self) -> None:
        """Assert that no two effects that wait share a token."""
        tokens = [
            effect.token
            for effect in self.effects
            if isinstance(effect, ReadJournal | ReplaceFile | WriteBlock)
        ]
        assert len(tokens) == len(dict.fromkeys(tokens)), "an answer has one effect"
        assert all(0 < token <= self._token for token in tokens), "tokens are given out here"

    def take_findings(self) -> list[Finding]:
        """Return all findings, each once."""
        findings, self._findings = self._findings, []
        return findings
