"""The entries of the audit log: who did what, from where, and with which outcome.

It records rare events only: logins, changes of users, tokens and permissions, and removals of data.
It never contains a secret or a hash of one.
"""

import msgspec

OK = "ok"
NO_USER_ID = -1


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log; `op` is 0 if it refers to no op of the metadata log."""

    event: str
    outcome: str = OK  # or the reason of the refusal
    user: str = ""
    user_id: int = NO_USER_ID
    address: str = ""  # empty where the server itself acts
    client: str = ""  # its id, 32 hexadecimal digits
    op: int = 0
    about: str = ""
    is_recovered: bool = False  # from before the start, and perhaps reported then
