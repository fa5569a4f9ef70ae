"""What the core tells the audit log: who did what, from where, and how it ended.

Only what is rare and matters: logins, changes of users, tokens and permissions, and what removes
data. No secret and no hash of one is ever part of it.
"""

import msgspec

OK = "ok"
NO_USER_ID = -1


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log; `op` is 0 where no op of the metadata log is meant."""

    event: str
    outcome: str = OK  # or why not
    user: str = ""
    user_id: int = NO_USER_ID
    address: str = ""  # empty where the server itself acts
    client: str = ""  # its id, 32 hexadecimal digits
    op: int = 0
    about: str = ""
    is_recovered: bool = False  # of before the start, and perhaps told then
