"""The password of the root user: from the configuration, or made and shown once."""

import sys
from collections.abc import Callable

from headrace.base.secret import Secret
from headrace.runtime.credentials import CredentialHasher, generate_password
from headrace.server import lines
from headrace.server.config.sections import ServerConfig


def make_root_password_hash(config: ServerConfig) -> Callable[[CredentialHasher], str]:
    """Return what makes the hash of the root password; called for a folder without users."""

    def root_password_hash(hasher: CredentialHasher) -> str:
        password = config.root.password
        if password is None:
            made = generate_password()
            # Before anything else: the hash of this password may be on the disk after a crash.
            show_once(lines.password_line(config.root.username, made))
            password = Secret(made.encode())
        return hasher.hash_now(password)

    return root_password_hash


def show_once(secret_line: str) -> None:
    """Show a secret to the operator: on the terminal, if there is one.

    Without a terminal it goes to stderr, which may be collected; the guide says so.
    """
    stream = next((each for each in (sys.stderr, sys.stdout) if each.isatty()), sys.stderr)
    stream.write(f"{secret_line}\n")
    stream.flush()
