"""Bytes that are never shown: passwords and tokens."""


class Secret(bytes):
    """Bytes whose text form hides their content."""

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__  # otherwise a formatted string would show the bytes
