"""A slip in the name of an option is an error, never a default in silence."""

import asyncio
from typing import Any

import pytest

import headrace
from headrace import aio
from headrace.client.aio.client import AsyncClient
from headrace.client.session.settings import resolve

SLIPS = [
    ("consumer", {"grup": "billing"}, r"consumer\(\) .* 'grup'; did you mean group\?"),
    ("consumer", {"name": "r", "comit": "each"}, r"'comit'; did you mean commit\?"),
    ("producer", {"bach": 1}, r"producer\(\) .* 'bach'; did you mean batch\?"),
    ("producer", {"zzzz": 1}, r"'zzzz'; it takes batch, batch_bytes, linger, buffer, block, "),
]


@pytest.mark.parametrize(("method", "options", "said"), SLIPS)
def test_a_slip_in_an_option_of_the_blocking_client(
    method: str, options: dict[str, object], said: str
) -> None:
    client = headrace.Client(resolve("127.0.0.1:1", {}, {}))
    with pytest.raises(TypeError, match=said):
        getattr(client, method)("shop/orders", **options)


@pytest.mark.parametrize(("method", "options", "said"), SLIPS)
def test_a_slip_in_an_option_of_the_asyncio_client(
    method: str, options: dict[str, object], said: str
) -> None:
    async def main() -> None:
        client = AsyncClient(resolve("127.0.0.1:1", {}, {}))
        with pytest.raises(TypeError, match=said):
            getattr(client, method)("shop/orders", **options)

    asyncio.run(main())


@pytest.mark.parametrize("connect", [headrace.connect, aio.connect])
def test_a_slip_in_an_option_of_connect(connect: Any) -> None:
    with pytest.raises(TypeError, match=r"connect\(\) .* 'tiemout'; did you mean timeout\?"):
        connect("127.0.0.1:1", tiemout=3)
