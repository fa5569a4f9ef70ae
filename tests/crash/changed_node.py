"""Changes the number of shards of a folder in a process of its own, which may be made to die.

python changed_node.py FOLDER COUNT
"""

import sys
from pathlib import Path

from headrace.server.folders import hold_folder
from headrace.server.generations import change_shard_count
from tests.server.filled_folder import configs


def main(folder: Path, count: int) -> None:
    with hold_folder(folder):
        change_shard_count(folder, configs(), count)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
