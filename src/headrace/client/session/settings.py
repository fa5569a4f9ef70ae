"""Resolves the arguments of `connect` and the environment: address, credentials, timeouts.

```
address       argument, else HEADRACE_ADDRESS, else 127.0.0.1:8090
credentials   arguments, else HEADRACE_TOKEN, else HEADRACE_USERNAME and HEADRACE_PASSWORD,
              else iggy/iggy, on loopback only
```
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict

from headrace.base.endpoints import Endpoint, parse_endpoint
from headrace.base.nearest import refuse_unknown
from headrace.base.secret import Secret
from headrace.base.units import parse_duration
from headrace.wire.commands.session import PasswordLogin, TokenLogin

ADDRESS_VARIABLE = "HEADRACE_ADDRESS"
ADDRESS_DEFAULT = "127.0.0.1:8090"
USERNAME_VARIABLE = "HEADRACE_USERNAME"
PASSWORD_VARIABLE = "HEADRACE_PASSWORD"  # noqa: S105 - the name of a variable
TOKEN_VARIABLE = "HEADRACE_TOKEN"  # noqa: S105 - the name of a variable
LOOPBACK_USERNAME = "iggy"
LOOPBACK_PASSWORD = "iggy"  # noqa: S105 - publicly known, and used on loopback only

WAIT_SECONDS_MAX = 86_400.0
_SECOND = 1_000_000

# A number of seconds, or text such as "250 ms".
Duration: TypeAlias = str | float


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`, besides the address.

    Attributes:
        username: The user to log in as; needs `password`.
        password: The password of that user.
        token: A personal access token, instead of username and password.
        timeout: How long one call may take, reconnects included. ["30 s"]
        answer_timeout: How long one answer may take before the connection counts as lost. ["15 s"]
        heartbeat: After how long an idle client sends a heartbeat. ["5 s"]
        wait: How long to retry a first connection that fails. [0]
    """

    username: str
    password: str
    token: str
    timeout: Duration
    answer_timeout: Duration
    heartbeat: Duration
    wait: Duration


@dataclass(frozen=True)
class Settings:
    """The settings of a session."""

    endpoint: Endpoint
    login: PasswordLogin | TokenLogin = field(repr=False)
    timeout_seconds: float = 30.0
    answer_seconds: float = 15.0
    heartbeat_seconds: float = 5.0
    wait_seconds: float = 0.0  # how long to retry a first connection that fails


def resolve(
    address: str | None, options: ConnectOptions, environment: Mapping[str, str]
) -> Settings:
    """Return the settings that result from arguments and environment.

    Raises:
        TypeError: There is no such option.
        ValueError: A value is wrong, or credentials are missing.
    """
    refuse_unknown("connect()", options, ConnectOptions.__annotations__)
    endpoint = _resolve_address(address, environment)
    return Settings(
        endpoint,
        _resolve_login(endpoint, options, environment),
        timeout_seconds=read_seconds("timeout", options.get("timeout", 30.0)),
        answer_seconds=read_seconds("answer_timeout", options.get("answer_timeout", 15.0)),
        heartbeat_seconds=read_seconds("heartbeat", options.get("heartbeat", 5.0)),
        wait_seconds=read_seconds("wait", options.get("wait", 0.0), zero=True),
    )


def read_seconds(name: str, value: Duration, *, zero: bool = False) -> float:
    """Return a duration in seconds; `zero` also allows 0.

    Raises:
        ValueError: It is not a duration, or out of range.
    """
    try:
        seconds = parse_duration(value) / _SECOND if isinstance(value, str) else float(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not 0 <= seconds <= WAIT_SECONDS_MAX or (seconds == 0 and not zero):
        raise ValueError(f"{name}: {value!r} is not above 0 and at most one day")
    return seconds


def _resolve_address(address: str | None, environment: Mapping[str, str]) -> Endpoint:
    name, text = "address", address
    if text is None:
        name, text = ADDRESS_VARIABLE, environment.get(ADDRESS_VARIABLE) or ADDRESS_DEFAULT
    try:
        endpoint = parse_endpoint(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if endpoint.port == 0:
        raise ValueError(f"{name}: {text} has no port to connect to")
    return endpoint


def _resolve_login(
    endpoint: Endpoint, options: ConnectOptions, environment: Mapping[str, str]
) -> PasswordLogin | TokenLogin:
    """Return the login; arguments override the environment as a whole, never in part."""
    token, username, password = (options.get(name) for name in ("token", "username", "password"))
    if token is not None and (username is not None or password is not None):
        raise ValueError("token: give a token, or username and password, not both")
    if token is None and username is None and password is None:
        token = environment.get(TOKEN_VARIABLE) or None
    if token is not None:
        return TokenLogin(Secret(str(token).encode()))
    username = username or environment.get(USERNAME_VARIABLE) or None
    password = password or environment.get(PASSWORD_VARIABLE) or None
    if username is None and password is None and endpoint.is_loopback:
        username, password = LOOPBACK_USERNAME, LOOPBACK_PASSWORD
    if username is None or password is None:
        raise ValueError(
            f"no credentials for {endpoint}: give username and password, or a token, or set"
            f" {USERNAME_VARIABLE} and {PASSWORD_VARIABLE}, or {TOKEN_VARIABLE}"
        )
    return PasswordLogin(str(username), Secret(str(password).encode()))
