"""Brokers whose names and passwords need escapes in a URL."""

from urllib.parse import quote
from uuid import uuid4

import pytest
from pydantic import SecretStr
from yarl import URL

from utterd.broker.connection import connect
from utterd.config import BrokerSettings

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(
    ("vhost", "password"),
    [
        ("team/speech", "p@ss:w/rd#1%41?&"),
        ("/", "パスワード 密码"),
        ("a b", "'\"\\${HOME}"),
    ],
)
async def test_any_virtual_host_and_any_password_can_be_written(
    sandbox, management, vhost, password
):
    """Percent-encoded, as a URL asks for."""
    user = f"user-{uuid4().hex[:8]}"
    await management.request("PUT", "users", user, body={"password": password, "tags": ""})
    await management.request("PUT", "vhosts", vhost)
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    await management.request("PUT", "permissions", vhost, user, body=rights)
    at = URL(sandbox.amqp_url)
    url = f"amqp://{user}:{quote(password, safe='')}@{at.host}:{at.port}/{quote(vhost, safe='')}"
    try:
        settings = BrokerSettings(url=SecretStr(url))
        async with await connect(settings, "address test") as connection:
            assert not connection.is_closed
    finally:
        await management.request("DELETE", "users", user)
        if vhost != "/":
            await management.request("DELETE", "vhosts", vhost)
