"""How the command ends: a code that scripts can read, and one sentence for people."""

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of every subcommand."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    UNAVAILABLE = 5


class CommandError(Exception):
    """A subcommand that did not succeed: its sentence goes to stderr, its code to the shell."""

    def __init__(self, sentence: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.code = code
