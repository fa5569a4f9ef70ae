import pytest

from headrace.base.endpoints import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8090", "127.0.0.1", 8090),
        (" localhost:0 ", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
        ("node-1.example.org:3000", "node-1.example.org", 3000),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    endpoint = parse_endpoint(text)
    assert endpoint == (host, port)
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8090",
        ":8090",
        "localhost",
        "localhost:",
        "localhost:-1",
        "localhost:65536",
        "localhost:1234567",
        "::1:8090",
        "[::1]",
        "[localhost]:8090",
        "[127.0.0.1]:8090",
        "999.1.1.1:80",
        "127.0.0.1.:80",
        "a b:80",
        "a\n:80",
        "-a:80",
        "localhost:\N{ARABIC-INDIC DIGIT THREE}",
    ],
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|host|ambiguous|brackets"):
        parse_endpoint(text)


def test_loopback() -> None:
    assert Endpoint("127.0.0.1", 1).is_loopback
    assert Endpoint("127.9.9.9", 1).is_loopback
    assert Endpoint("::1", 1).is_loopback
    assert Endpoint("localhost", 1).is_loopback
    assert not Endpoint("0.0.0.0", 1).is_loopback
    assert not Endpoint("::", 1).is_loopback
    assert not Endpoint("localhost.example.org", 1).is_loopback
