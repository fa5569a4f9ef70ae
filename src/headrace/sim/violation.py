"""What a checker raises."""


class SimViolationError(Exception):
    """A rule was broken: its code, and the facts that show it."""

    def __init__(self, code: str, **facts: object) -> None:
        self.code = code
        self.facts = facts
        told = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        super().__init__(f"{code}: {told}")
