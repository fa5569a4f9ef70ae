"""Bytes that are never shown: passwords and tokens."""


class Secret(bytes):
    """Bytes that are not shown."""

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__  # or a formatted line would show the bytes
