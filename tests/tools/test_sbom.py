"""The bill of materials says what the lock says, in the words of CycloneDX."""

from pathlib import Path

import pytest

from tools.lockfile import Locked, read_lock
from tools.sbom import LOCK, make_bill, told_time

PROJECT = {"name": "shop", "version": "1.2.3", "description": "A shop", "license": "Apache-2.0"}
PACKAGES = [
    Locked("alpha", "1.0", "", ("a" * 64, "b" * 64), ("shop (pyproject.toml)",)),
    Locked("beta", "2.0", "sys_platform != 'win32'", ("c" * 64,), ("alpha", "gamma")),
    Locked("gamma", "3.0", "", ("d" * 64,), ("-r requirements/dev.in", "alpha")),
]


def test_every_package_stands_with_its_files() -> None:
    bill = make_bill(PROJECT, PACKAGES, None)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    alpha, beta, _ = bill["components"]
    assert (alpha["name"], alpha["version"], alpha["purl"]) == (
        "alpha",
        "1.0",
        "pkg:pypi/alpha@1.0",
    )
    (files,) = alpha["externalReferences"]
    assert [each["content"] for each in files["hashes"]] == ["a" * 64, "b" * 64]
    assert [each["value"] for each in beta["properties"]] == ["sys_platform != 'win32'"]
    assert "properties" not in alpha


def test_who_needs_whom() -> None:
    bill = make_bill(PROJECT, PACKAGES, None)
    assert {each["ref"]: each["dependsOn"] for each in bill["dependencies"]} == {
        "shop": ["alpha", "gamma"],
        "alpha": ["beta", "gamma"],
        "beta": [],
        "gamma": ["beta"],
    }


def test_the_number_names_the_content() -> None:
    bill = make_bill(PROJECT, PACKAGES, None)
    assert (
        make_bill(PROJECT, PACKAGES, "2026-01-01T00:00:00+00:00")["serialNumber"]
        == (bill["serialNumber"])
    )
    assert make_bill(PROJECT, PACKAGES[:2], None)["serialNumber"] != bill["serialNumber"]
    assert "timestamp" not in bill["metadata"]


@pytest.mark.parametrize(
    ("epoch", "told"), [(None, None), ("1700000000", "2023-11-14T22:13:20+00:00")]
)
def test_the_time_is_the_one_that_is_given(epoch: str | None, told: str | None) -> None:
    assert told_time(epoch) == told


def test_our_own_lock_makes_a_bill() -> None:
    packages = read_lock(Path(LOCK))
    bill = make_bill(PROJECT, packages, None)
    refs = {each["bom-ref"] for each in bill["components"]}
    assert {"msgspec", "argon2-cffi", "xxhash"} <= refs
    needed = {name for each in bill["dependencies"] for name in each["dependsOn"]}
    assert needed == refs  # Nothing is in the lock that nobody needs.
