"""Removes files of a Parquet sink that no commit lists.

Spark's file sink lists its committed files in `_spark_metadata`, and Spark's readers use that list.
Other readers take every file of the folder, including those of a killed batch. So these are removed
when the job starts again, before it writes.

```
_spark_metadata/7           v1, then a line of JSON for each file of batch 7
_spark_metadata/9.compact   the same for all batches up to 9
```
"""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

METADATA = "_spark_metadata"
COMPACT = ".compact"


def remove_parquet_leftovers(folder: Path) -> int:
    """Remove the files that no batch committed; return their number.

    No process may be writing to the folder. A folder that never was a sink is left alone.
    """
    log = folder / METADATA
    if not log.is_dir():
        return 0
    kept = committed_files(folder)
    leftovers = [path for path in folder.rglob("part-*.parquet") if path.resolve() not in kept]
    for path in leftovers:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(leftovers)


def committed_files(folder: Path) -> set[Path]:
    """Return the files that the batches of a Parquet sink committed."""
    log = folder / METADATA
    numbered = {
        int(path.name.removesuffix(COMPACT)): path
        for path in log.iterdir()
        if path.name.removesuffix(COMPACT).isdecimal()
    }
    compacted = [number for number, path in numbered.items() if path.name.endswith(COMPACT)]
    first = max(compacted, default=0)
    entries = [numbered[number] for number in sorted(numbered) if number >= first]
    return {path for entry in entries for path in _files_of(entry)}


def _files_of(entry: Path) -> list[Path]:
    version, *lines = entry.read_text().splitlines()
    if version != "v1":
        raise ValueError(f"{entry}: version {version!r} of Spark's file log is not known here")
    added = [json.loads(line) for line in lines]
    return [
        Path(unquote(urlparse(each["path"]).path)).resolve()
        for each in added
        if each["action"] == "add"
    ]
