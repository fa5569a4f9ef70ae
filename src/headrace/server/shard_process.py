"""The program of one shard of several; the supervisor starts it: `-m` this, descriptor, CPUs.

It keeps to its CPUs before anything else is loaded: memory that it takes later is of their NUMA
node (SH-7).
"""

import sys
from importlib import import_module

from headrace.runtime.pinning import pin_process


def main(arguments: list[str]) -> int:
    """Run the shard that the other end of a line describes; return the exit code."""
    descriptor, cpus = int(arguments[0]), [int(cpu) for cpu in arguments[1:]]
    if cpus:
        pin_process(cpus)
    code: int = import_module("headrace.server.member").run_member(descriptor)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
