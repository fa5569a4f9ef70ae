"""How many files and sockets this process may have open."""

import resource

_UNLIMITED_ENOUGH = 1 << 20  # where the system sets no limit: more is never used


def raise_open_files() -> int:
    """Raise the limit of this process and its children as far as it may; return it.

    Sessions often begin with 1,024, for the sake of programs that use `select`. A node has a
    socket for each client, and lanes for each pair of its shards.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _UNLIMITED_ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft  # The system allows less than it says; what it gave before still holds.
    return wanted
