import pytest
from pydantic import SecretStr

from utterd.broker.connection import connect
from utterd.errors import BrokerUnavailableError

pytestmark = pytest.mark.sandbox


async def refusal(settings, url: str) -> str:
    elsewhere = settings.model_copy(update={"url": SecretStr(url), "connect_timeout_s": 1.0})
    with pytest.raises(BrokerUnavailableError) as caught:
        await connect(elsewhere, "test")
    return str(caught.value)


async def test_a_wrong_password_is_told_and_not_shown(bare_settings):
    """The broker's reason is passed on, the password is not."""
    host = bare_settings.url.get_secret_value().rpartition("@")[2]
    message = await refusal(bare_settings, f"amqp://utterd:pass-word@{host}")
    assert "ACCESS_REFUSED" in message
    assert "broker.url names the right host, user, password" in message
    assert "pass-word" not in message


async def test_a_virtual_host_that_is_not_there_is_told(bare_settings):
    """The message says which part of the URL to look at."""
    message = await refusal(bare_settings, bare_settings.url.get_secret_value() + "nowhere")
    assert "virtual host" in message
    assert "object at" not in message


async def test_what_is_no_broker_is_told(bare_settings, sandbox):
    """A port that speaks something else ends in the same error, not in a traceback."""
    port = sandbox.management_url.rpartition(":")[2]
    message = await refusal(bare_settings, f"amqp://utterd:pass-word@127.0.0.1:{port}/")
    assert f"127.0.0.1:{port}" in message
    assert "pass-word" not in message


async def test_a_plain_port_does_not_speak_tls(bare_settings):
    """`amqps` against a plain listener names the TLS fault."""
    host = bare_settings.url.get_secret_value().rpartition("@")[2]
    message = await refusal(bare_settings, f"amqps://utterd:pass-word@{host}")
    assert "SSL" in message
    assert "pass-word" not in message


async def test_a_broker_that_says_nothing_is_given_up(bare_settings, proxy):
    """An open port is no broker: the time limit covers the login."""
    proxy.silence()
    assert "no answer in time" in await refusal(bare_settings, proxy.url)


@pytest.mark.parametrize("position_bytes", [*range(1, 520, 40)])
async def test_a_broker_that_breaks_off_during_the_login_is_unavailable(
    bare_settings, proxy, position_bytes
):
    """Wherever the login breaks off, the error is the same kind."""
    proxy.cut_after_bytes = position_bytes
    assert "can't be used" in await refusal(bare_settings, proxy.url)


async def test_a_password_may_hold_reserved_characters(bare_settings, management):
    """Percent-encoding in the URL is undone before the login."""
    user, password = f"{bare_settings.exchanges.jobs}@x", "p@ss/w:rd%"
    await management.request("PUT", "users", user, body={"password": password, "tags": ""})
    rights = {"configure": "", "write": "", "read": ""}
    await management.request("PUT", "permissions", "/", user, body=rights)
    host = bare_settings.url.get_secret_value().rpartition("@")[2].rstrip("/")
    url = f"amqp://{user.replace('@', '%40')}:p%40ss%2Fw%3Ard%25@{host}/%2F"
    settings = bare_settings.model_copy(update={"url": SecretStr(url)})
    async with await connect(settings, "test") as connection:
        assert not connection.is_closed
    await management.request("DELETE", "users", user)
