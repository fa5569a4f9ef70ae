"""Ctrl-C while something must not be left half done."""

import signal

import pytest

from headrace.cli.produce.interrupts import Interrupts


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def read_while_pressed() -> str:
    press()
    return "never"


def test_it_ends_the_waiting() -> None:
    with Interrupts() as interrupts:
        assert interrupts.wait(lambda: "read") == "read"
        assert interrupts.wait(read_while_pressed) is None
        assert interrupts.is_wanted
        assert interrupts.wait(lambda: "read") is None


def test_work_is_not_interrupted_by_the_first() -> None:
    with Interrupts() as interrupts:
        press()
        assert interrupts.is_wanted
        with pytest.raises(KeyboardInterrupt):
            press()


def test_it_is_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
