"""The search for secrets finds what is planted; else it would prove nothing."""

import base64
from pathlib import Path

import pytest

from tests.known_secrets import (
    MARKER,
    LeakedError,
    check_nodes,
    check_output,
    make_password,
    remember,
    search,
)

PASSWORD = make_password("planted")
TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "planted",
    [
        PASSWORD,
        b"password=" + PASSWORD.hex().encode(),
        base64.b64encode(PASSWORD),
        b"as secret-1 in a line",
        TOKEN.encode(),
        # Across the blocks in which a file is read, and between blocks of zeros.
        bytes((1 << 16) - 3) + PASSWORD,
        bytes(1 << 20) + PASSWORD + bytes(1 << 20),
    ],
    ids=["plain", "hex", "base64", "word", "token", "across", "between"],
)
def test_what_is_planted_in_a_data_folder_is_found(tmp_path: Path, planted: bytes) -> None:
    remember(TOKEN)
    place = tmp_path / "metadata" / "journal.0"
    place.parent.mkdir()
    place.write_bytes(planted)
    (found,) = search(tmp_path)
    assert str(place) in found
    assert PASSWORD.decode() not in found


def test_a_hash_may_be_in_the_data_and_not_in_the_output(tmp_path: Path) -> None:
    for name in ("journal.0", "output.log"):
        (tmp_path / name).write_text("$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA")
    (found,) = search(tmp_path)
    assert "output.log" in found
    (tmp_path / "output.log").unlink()  # The whole run is searched in the end.


@pytest.mark.parametrize("said", [PASSWORD.decode(), "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aA"])
def test_what_a_test_has_read_of_a_node_is_searched(said: str) -> None:
    check_output("headrace is ready")
    with pytest.raises(LeakedError, match="what a node printed holds"):
        check_output(f"logging in with {said}")


def test_data_and_output_anywhere_below_are_searched_and_configurations_are_not(
    tmp_path: Path,
) -> None:
    data = tmp_path / "deep" / "data"
    (data / "metadata").mkdir(parents=True)
    (data / "layout").touch()
    config = tmp_path / "headrace.toml"
    config.write_bytes(PASSWORD)
    check_nodes(tmp_path)
    for place in (data / "metadata" / "superblock", tmp_path / "deep" / "node.log"):
        place.write_bytes(b"..." + MARKER + b"...")
        with pytest.raises(LeakedError, match=place.name):
            check_nodes(tmp_path)
        place.unlink()
