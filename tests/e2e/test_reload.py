"""Settings that a running daemon takes anew."""

import asyncio
import os
import signal
from uuid import uuid4

import pytest
from yarl import URL

from support.management import Management
from support.place import PATIENCE_S
from utterd_schemas.events import EventType

pytestmark = pytest.mark.sandbox


@pytest.fixture
def settings_file(tmp_path):
    return tmp_path / "utterd.toml"


async def test_voices_change_at_a_hangup_and_no_job_is_lost(bus, start_alone, settings_file):
    """A new alias is known to the next job; what needs a restart is named."""
    settings_file.write_text("[speech.aliases]\nnews = 'hibari/heart'\n")
    daemon = start_alone(UTTERD_CONFIG=str(settings_file))
    await bus.run("Before the change.", voice="news")
    settings_file.write_text(
        "[speech.aliases]\nweather = 'hibari/heart'\n[lifecycle]\ndrain_timeout_s = 5\n"
    )
    os.kill(daemon.pid, signal.SIGHUP)
    reloaded = await daemon.until_logged("reloaded")
    assert reloaded["changed"] == ["speech.aliases"]
    assert reloaded["need_a_restart"] == ["lifecycle.drain_timeout_s"]
    await bus.run("After the change.", voice="weather")
    job_id = str(uuid4())
    await bus.publish({"job_id": job_id, "text": "Gone.", "voice": "news"})
    assert (await bus.terminal(job_id))["type"] == EventType.FAILED


async def test_the_lexicon_is_read_again_at_a_hangup(bus, start_alone, settings_file):
    """The next job is spoken by it, under another key, and the log names it."""
    lexicon = settings_file.with_name("lexicon.toml")
    lexicon.write_text('SQL = "sequel"\n')
    daemon = start_alone(UTTERD_SPEECH__LEXICON=str(lexicon))
    before = await bus.run("Ask SQL.")
    lexicon.write_text('SQL = "squeal"\n')
    os.kill(daemon.pid, signal.SIGHUP)
    assert (await daemon.until_logged("reloaded"))["changed"] == ["speech.lexicon"]
    after = await bus.run("Ask SQL.")
    assert before["key"] != after["key"]
    assert not after["cached"]


async def test_settings_that_are_wrong_change_nothing(bus, start_alone, settings_file):
    """The daemon says what is wrong with them and goes on."""
    settings_file.write_text("")
    daemon = start_alone(UTTERD_CONFIG=str(settings_file))
    await bus.run("Before the mistake.")
    settings_file.write_text("[speech]\nvoice = 'nobody/none'\n")
    os.kill(daemon.pid, signal.SIGHUP)
    assert "nobody/none" in (await daemon.until_logged("reload_refused"))["reason"]
    await bus.run("After the mistake.")


async def test_a_pipe_in_the_lexicons_place_holds_nothing_up(bus, start_alone, settings_file):
    """Nobody writes to it; jobs go on with the words that were read before."""
    lexicon = settings_file.with_name("words.toml")
    lexicon.write_text('SQL = "sequel"\n')
    daemon = start_alone(UTTERD_SPEECH__LEXICON=str(lexicon))
    before = await bus.run("Tell SQL.")
    lexicon.unlink()
    os.mkfifo(lexicon)
    os.kill(daemon.pid, signal.SIGHUP)
    assert "a pipe" in (await daemon.until_logged("reload_refused"))["reason"]
    assert (await bus.run("Tell SQL."))["key"] == before["key"]


async def test_the_log_gets_another_level_at_a_hangup(bus, start_alone, settings_file):
    """Nobody has to restart a daemon to look at it closely."""
    settings_file.write_text("[log]\nlevel = 'warning'\n")
    daemon = start_alone(UTTERD_CONFIG=str(settings_file))
    await bus.run("Nothing is said of this.")
    assert daemon.completed == []
    settings_file.write_text("[log]\nlevel = 'info'\n")
    os.kill(daemon.pid, signal.SIGHUP)
    await daemon.until_logged("reloaded")
    data = await bus.run("This is told.")
    assert (await daemon.until_logged("job_completed"))["key"] == data["key"]


async def test_a_password_is_exchanged_without_a_restart(bus, start_alone, settings_file, sandbox):
    """The next connection uses the new one; jobs go on, and nothing is lost."""
    management = Management(sandbox.management_url)
    user, old, new = f"user-{uuid4().hex[:8]}", "the old one", "the new one"

    async def set_password(password):
        await management.request("PUT", "users", user, body={"password": password, "tags": ""})
        at = URL(sandbox.amqp_url).with_user(user).with_password(password)
        settings_file.write_text(f"[broker]\nurl = '{at}'\n")

    await set_password(old)
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    await management.request("PUT", "permissions", "/", user, body=rights)
    try:
        daemon = start_alone(UTTERD_CONFIG=str(settings_file), UTTERD_BROKER__URL=None)
        await bus.run("With the old password.")
        await set_password(new)
        os.kill(daemon.pid, signal.SIGHUP)
        assert (await daemon.until_logged("reloaded"))["changed"] == ["broker.url"]
        for name in ("utterd consumer", "utterd publisher"):
            # The broker's list of connections is some seconds behind.
            async with asyncio.timeout(PATIENCE_S):
                while not await management.close_connections(name, user=user):
                    pass
        await bus.run("With the new password.")
    finally:
        await management.request("DELETE", "users", user)


async def test_keys_of_the_bucket_are_exchanged_without_a_restart(bus, start_alone, settings_file):
    """A refused key pauses the daemon; the right one lets it go on."""
    secret = bus.place.store.secret_access_key.get_secret_value()
    settings_file.write_text("[store]\nsecret_access_key = 'has been revoked'\n")
    daemon = start_alone(UTTERD_CONFIG=str(settings_file), UTTERD_STORE__SECRET_ACCESS_KEY=None)
    await daemon.until_logged("still_paused")
    settings_file.write_text(f"[store]\nsecret_access_key = '{secret}'\n")
    os.kill(daemon.pid, signal.SIGHUP)
    await daemon.until_logged("reloaded")
    await bus.run("With the new key.")
