"""How the command ends: an exit code for scripts, and one sentence for people."""

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
    """A subcommand failed: the sentence goes to stderr, the code to the shell."""

    def __init__(self, sentence: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.code = code
