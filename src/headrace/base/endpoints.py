"""Addresses to listen on or connect to: a host and a port, as users write them."""

import re
from ipaddress import ip_address
from typing import NamedTuple

PORT_MAX = 65_535

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_HOW = "write HOST:PORT, such as 127.0.0.1:8090 or [::1]:8090"


class Endpoint(NamedTuple):
    """A host, by name or IP address, and a port; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; of names, only `localhost` is known to."""
        if self.host == "localhost":
            return True
        return _is_number(self.host) and ip_address(self.host).is_loopback


def parse_endpoint(text: str) -> Endpoint:
    """Read an address such as `127.0.0.1:8090`, `localhost:0` or `[::1]:8090`.

    Raises:
        ValueError: The text is not an address.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise ValueError(f"{text!r} has no port: {_HOW}")
    if int(port) > PORT_MAX:
        raise ValueError(f"{text!r} has a port above {PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host or not _is_number(host):
            raise ValueError(f"{text!r} has no IPv6 address in its brackets")
    elif ":" in host:
        raise ValueError(f"{text!r} is ambiguous: {_HOW}")
    elif not _is_host(host):
        raise ValueError(f"{text!r} has no host: {_HOW}")
    return Endpoint(host, int(port))


def _is_host(host: str) -> bool:
    """Return whether the text may be a host; digits and points alone must be an IP address."""
    if re.fullmatch("[0-9.]*", host):
        return _is_number(host)
    return _HOST_NAME.fullmatch(host) is not None


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
