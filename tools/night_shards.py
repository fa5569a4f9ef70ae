"""The lanes of real nodes at 1, 2 and 4 shards, and the long form of `tests/shards`: `make night`.

python -m tools.night_shards
python -m tools.night_shards --shards 4
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

COUNTS = (1, 2, 4)
_PYTEST = ("-m", "pytest", "-q", "-n", "2")
_NIGHT = ("-m", "tools.night")
# Kills and cuts of one shard are lanes of `tools.night`, with more of each.
ALWAYS = ((*_PYTEST, "tests/interop"), (*_PYTEST, "tests/security"))
SEVERAL = (
    (*_NIGHT, "kills", "--count", "300"),
    (*_NIGHT, "cuts", "--count", "60"),
)
# They say how many shards their nodes have.
ONCE = (*_PYTEST, "tests/shards", "tests/crash/test_shard_count.py")
LONG = {"SHARD_COUNTS": "2,3,8", "RECREATE_CYCLES": "2000"}


def run(arguments: Sequence[str], **environment: str) -> bool:
    """Run a lane; return whether it found nothing."""
    told = " ".join([*(f"{name}={text}" for name, text in environment.items()), *arguments])
    print(told, flush=True)
    start = time.monotonic()
    code = subprocess.run(  # noqa: S603 - this very interpreter
        [sys.executable, *arguments], env=os.environ | environment, check=False
    ).returncode
    print(f"{told}: code {code}, {time.monotonic() - start:.0f} s", flush=True)
    return code == 0


def main() -> int:
    """Run all lanes; return 1 if one of them found something."""
    parser = argparse.ArgumentParser(description="Lanes of real nodes at several shards.")
    parser.add_argument("--shards", type=int, action="append", help="1, 2 and 4 if not given")
    asked = parser.parse_args()
    found = []
    for count in asked.shards or COUNTS:
        lanes = ALWAYS if count == 1 else (*ALWAYS, *SEVERAL)
        found += [run(lane, NODE_SHARDS=str(count)) for lane in lanes]
    if not asked.shards:
        found.append(run(ONCE, **LONG))
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
