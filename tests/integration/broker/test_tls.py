"""Connections over TLS, to a listener of the sandbox's node with a private authority."""

import socket

import pytest
import trustme
from yarl import URL

from utterd.broker.connection import connect
from utterd.errors import BrokerUnavailableError, ConfigurationError

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def tls_settings(sandbox, bare_settings, authority, tmp_path, node_control):
    """Settings for a listener that wants a client certificate, which these don't show yet."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = authority.issue_cert("localhost", "127.0.0.1")
    server.private_key_pem.write_to_path(tmp_path / "server.key")
    server.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    client = authority.issue_cert("gateway-1")
    client.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ", ".join(
        (
            f'{{cacertfile, "{tmp_path}/ca.pem"}}',
            f'{{certfile, "{tmp_path}/server.pem"}}',
            f'{{keyfile, "{tmp_path}/server.key"}}',
            "{verify, verify_peer}",
            "{fail_if_no_peer_cert, true}",
        )
    )
    address = f'{{"127.0.0.1", {port}, auto}}'
    await node_control.run(
        "eval", f"rabbit_networking:start_ssl_listener({address}, [{options}], 2)."
    )
    url = URL(sandbox.amqp_url).with_scheme("amqps").with_host("localhost").with_port(port)
    yield bare_settings.model_copy(
        update={
            "url": type(bare_settings.url)(str(url)),
            "tls_ca_file": tmp_path / "ca.pem",
            "tls_certificate_file": tmp_path / "client.pem",
        }
    )
    await node_control.run("eval", f"rabbit_networking:stop_tcp_listener({address}).")


async def test_a_private_authority_and_a_client_certificate_open_the_door(tls_settings):
    """Both sides know each other."""
    async with await connect(tls_settings, "tls test") as connection:
        assert not connection.is_closed


async def test_without_the_client_certificate_the_door_stays_shut(tls_settings):
    """And the message says that the broker can't be used."""
    settings = tls_settings.model_copy(update={"tls_certificate_file": None})
    with pytest.raises(BrokerUnavailableError):
        await connect(settings, "tls test")


async def test_a_broker_that_nobody_vouches_for_is_refused(tls_settings):
    """The system's authorities don't know the private one."""
    settings = tls_settings.model_copy(update={"tls_ca_file": None})
    with pytest.raises(BrokerUnavailableError, match="certificate"):
        await connect(settings, "tls test")


@pytest.mark.parametrize(
    ("setting", "content"),
    [
        ("tls_ca_file", "no certificate"),
        ("tls_certificate_file", "no certificate"),
        ("tls_ca_file", None),
    ],
)
async def test_files_that_are_no_certificates_are_a_matter_of_settings(
    bare_settings, tmp_path, setting, content
):
    """No number of attempts would help."""
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_text(content)
    settings = bare_settings.model_copy(
        update={setting: path, "url": type(bare_settings.url)("amqps://localhost:5671/")}
    )
    with pytest.raises(ConfigurationError, match=r"broker\.tls_"):
        await connect(settings, "tls test")
