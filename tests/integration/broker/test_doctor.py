"""What the doctor finds about the rights of a user, and about a broker that stops answering."""

import asyncio

import pytest
from pydantic import SecretStr

from utterd.doctor.broker import examine_broker
from utterd.doctor.examination import Group, examine
from utterd.doctor.finding import Verdict

pytestmark = pytest.mark.sandbox


async def faults(settings) -> set[str]:
    return {
        finding.check.removesuffix(settings.exchanges.control).strip()
        async for finding in examine_broker(settings)
        if finding.verdict is Verdict.FAULT
    }


async def test_all_rights_are_granted_to_who_has_them(settings):
    """The sandbox's user may do everything."""
    assert not await faults(settings)


async def test_rights_to_read_are_found_missing(settings, restricted_user):
    """Lanes and orders can't be taken, and nothing else is blamed."""
    limited = await restricted_user(settings, ".*", ".*", "no-such-name")
    checks = {one.check: one.verdict async for one in examine_broker(limited)}
    for queue in ("interactive", "batch", "lapsed"):
        assert checks[f"read {queue}"] is Verdict.FAULT
    assert checks[f"read {settings.exchanges.control}"] is Verdict.FAULT


async def test_rights_to_write_are_found_missing(settings, restricted_user):
    """Events can't be sent; each exchange is named."""
    limited = await restricted_user(settings, ".*", "amq.gen.*", ".*")
    checks = {one.check: one async for one in examine_broker(limited)}
    for name in (settings.exchanges.events, settings.exchanges.retry, settings.exchanges.dead):
        assert checks[f"write {name}"].verdict is Verdict.FAULT
        assert f"'{name}'" in checks[f"write {name}"].message
    assert checks["write replies"].verdict is Verdict.WARNING
    assert checks["read batch"].verdict is Verdict.OK


async def test_the_right_to_configure_counts_where_the_daemon_declares(settings, restricted_user):
    """Where another user has declared everything, a private queue is all that is needed."""
    limited = await restricted_user(settings, "amq.gen.*", ".*", ".*")
    checks = {one.check: one.verdict async for one in examine_broker(limited)}
    assert checks["configure"] is Verdict.FAULT
    passive = limited.model_copy(update={"declare_topology": False})
    assert not await faults(passive)


async def test_a_broker_that_falls_silent_is_told_in_time(through_proxy, proxy):
    """What was found until then stands."""
    group = Group("broker", examine_broker(through_proxy), "look into its log", deadline_s=0.5)
    found = []
    async with asyncio.timeout(30):
        async for _, finding in examine([group]):
            found.append(finding)
            proxy.silence()
    proxy.speak()
    assert [finding.check for finding in found] == ["connection", "version", "time"]
    assert found[-1].message == "no answer within 0.5 s: look into its log"


async def test_a_wrong_password_is_a_fault(settings):
    """And is not shown."""
    url = settings.url.get_secret_value().replace(":utterd-sandbox@", ":a-wrong-one@")
    wrong = settings.model_copy(update={"url": SecretStr(url)})
    (finding,) = [one async for one in examine_broker(wrong)]
    assert finding.verdict is Verdict.FAULT
    assert "a-wrong-one" not in finding.message
