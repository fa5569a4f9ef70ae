"""Runs a node that believes what it is told of the start of its machine.

A power cut on one file system leaves the kernel running, so the node would not know of it: the
first argument stands for the boot identity (rule 7), the second is the data folder.
"""

import os
import sys

from headrace.server.bootstrap import run
from headrace.server.config.load import load_config
from headrace.server.shard_count import settle_shards


def main() -> int:
    """Run the node in the foreground; give its exit code."""
    identity, data, _, tcp, _, http = sys.argv[1:]
    flags = {"server.data_dir": data, "tcp.address": tcp, "http.address": http}
    config = load_config(None, os.environ, flags, "dev")
    places = settle_shards(config, folder=config.server.data_dir).shards
    return run(config, is_throwaway=False, places=places, boot_identity=int(identity))


if __name__ == "__main__":
    sys.exit(main())
