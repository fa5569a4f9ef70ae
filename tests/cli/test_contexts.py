"""The file of contexts: where it is, what it holds, who may read it."""

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.cli.connect.contexts import (
    Context,
    Contexts,
    check_name,
    find_file,
    load_contexts,
    save_contexts,
)
from headrace.cli.exits import CommandError, Exit

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
CONTEXT = st.builds(
    Context,
    address=st.none() | TEXT,
    username=st.none() | TEXT,
    password=st.none() | TEXT,
    token=st.none() | TEXT,
    token_name=st.none() | TEXT,
    token_expires_at=st.none() | st.integers(0, 1 << 62),
)
NAME = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,10}", fullmatch=True)


def environment(folder: Path) -> dict[str, str]:
    return {"HEADRACE_HOME": str(folder)}


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert find_file({}) == Path("/home/ada/.config/headrace/contexts.toml")
    assert find_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/headrace/contexts.toml")
    assert find_file({"XDG_CONFIG_HOME": "/x", "HEADRACE_HOME": "/y"}) == Path("/y/contexts.toml")


def test_nowhere_to_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(CommandError, match="set HEADRACE_HOME"):
        find_file({})


def test_without_a_file_there_is_the_default(tmp_path: Path) -> None:
    contexts = load_contexts(environment(tmp_path))
    assert (contexts.current, contexts.names()) == ("default", ["default"])
    assert contexts.get("default") == Context()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.dictionaries(NAME, CONTEXT, max_size=3))
def test_what_is_written_is_read(tmp_path: Path, named: dict[str, Context]) -> None:
    wanted = Contexts(next(iter(named), "default"), named)
    path = save_contexts(environment(tmp_path), wanted)
    assert load_contexts(environment(tmp_path)) == wanted
    assert [each.name for each in path.parent.iterdir()] == ["contexts.toml"]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    path = save_contexts(environment(folder), Contexts(named={"prod": Context(token="secret")}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    path.chmod(0o640)
    with pytest.raises(CommandError, match=f"others may use it: chmod 600 {path}"):
        load_contexts(environment(folder))


def test_a_failed_write_leaves_what_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Contexts(named={"prod": Context("10.0.0.7:8090")})
    path = save_contexts(environment(tmp_path), before)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save_contexts(environment(tmp_path), Contexts())
    assert load_contexts(environment(tmp_path)) == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("current = ", "cannot be read: "),
        ('current = "prod"', "current = 'prod' is none of its contexts"),
        ("contexts = 1", "contexts is no table"),
        ("[contexts]\nprod = 1", "contexts.prod is no table"),
        (
            'colour = 1\n[contexts.prod]\naddress = 7\ncolor = "red"',
            "colour is not known; contexts.prod has address, color, which is not known",
        ),
    ],
)
def test_what_is_wrong_in_it_is_said(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "contexts.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(CommandError) as caught:
        load_contexts(environment(tmp_path))
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["", ".a", "a b", "a/b", "a" * 65, "ä"])
def test_names(name: str) -> None:
    assert check_name("prod-1.eu_west") == "prod-1.eu_west"
    with pytest.raises(CommandError) as caught:
        check_name(name)
    assert caught.value.code == Exit.USAGE


def test_secrets_are_not_printed() -> None:
    assert "hidden" not in repr(Contexts(named={"a": Context(password="hidden", token="hidden")}))


def test_the_default_takes_the_place_of_a_deleted_one() -> None:
    contexts = Contexts("prod", {"prod": Context("x"), "test": Context("y")})
    assert contexts.without("prod") == Contexts("default", {"test": Context("y")})
    assert contexts.without("test").current == "prod"
    with pytest.raises(CommandError, match="no context 'none'; there are default, prod, test"):
        contexts.use("none")
