"""The doctor on real parts."""

import asyncio

import aio_pika
import pytest
from pydantic import SecretStr

from support.management import Management
from utterd.broker.connection import connect
from utterd.broker.topology import DEAD_ROUTING_KEY, LAPSED_ROUTING_KEY
from utterd.config import EngineSettings, Lane, Settings, StoreSettings
from utterd.doctor.broker import examine_broker
from utterd.doctor.engine import examine_engine
from utterd.doctor.examination import examine, groups
from utterd.doctor.finding import Verdict
from utterd.doctor.store import examine_store
from utterd.settings_sources import environment_name
from utterd.store.s3_client import S3Options, make_s3_client

pytestmark = pytest.mark.sandbox


@pytest.fixture
def store(sandbox) -> StoreSettings:
    prefix = environment_name("store.")
    values = {
        variable.removeprefix(prefix).lower(): value
        for variable, value in sandbox.environ().items()
        if variable.startswith(prefix)
    }
    return StoreSettings(**values | {"prefix": "doctor/"})


@pytest.fixture
async def channel(settings):
    async with await connect(settings, "test") as connection, connection.channel() as channel:
        yield channel


async def verdicts(findings) -> dict[str, Verdict]:
    return {finding.check: finding.verdict async for finding in findings}


async def test_a_sound_place_has_no_fault(settings, store, tmp_path):
    """Every group has something to say, and nobody has to do anything."""
    sound = Settings().model_copy(
        update={
            "broker": settings,
            "store": store.model_copy(update={"spool_directory": tmp_path / "spool"}),
        }
    )
    async with asyncio.timeout(100):
        found = [one async for one in examine(groups(sound))]
    assert not [finding for _, finding in found if finding.verdict is Verdict.FAULT]
    assert {group for group, _ in found} == {group.name for group in groups(sound)}


async def test_nothing_is_left_on_the_store(store):
    """The probe's object is removed."""
    assert (await verdicts(examine_store(store)))["access"] is Verdict.OK
    options = S3Options(
        bucket=store.bucket,
        endpoint_url=store.endpoint_url,
        region=store.region,
        access_key_id=store.access_key_id,
        secret_access_key=store.secret_access_key.get_secret_value(),
    )
    client = make_s3_client(options, pool_size=1)
    listed = await asyncio.to_thread(
        client.list_objects_v2, Bucket=store.bucket, Prefix="doctor/utterd-probe"
    )
    client.close()
    assert listed["KeyCount"] == 0


async def test_a_wrong_secret_is_a_fault(store):
    """The message names the remedy and not the secret."""
    wrong = StoreSettings(**store.model_dump() | {"secret_access_key": "a-wrong-one"})
    (finding,) = [one async for one in examine_store(wrong)]
    assert finding.verdict is Verdict.FAULT
    assert "secret" in finding.message
    assert "a-wrong-one" not in finding.message


async def test_a_missing_bucket_is_a_fault(store):
    """Though a look for an object says 404 there as well."""
    missing = store.model_copy(update={"bucket": "not-there"})
    (finding,) = [one async for one in examine_store(missing)]
    assert finding.verdict is Verdict.FAULT
    assert "NoSuchBucket" in finding.message


async def test_a_broker_without_topology_is_a_warning(bare_settings):
    """A daemon would declare it; the doctor does not."""
    findings = await verdicts(examine_broker(bare_settings))
    assert findings["topology"] is Verdict.WARNING
    assert Verdict.FAULT not in findings.values()
    assert await verdicts(examine_broker(bare_settings)) == findings


async def test_a_broker_that_must_have_the_topology_and_has_not_is_a_fault(bare_settings):
    """Where the daemon only checks, somebody has to declare it."""
    settings = bare_settings.model_copy(update={"declare_topology": False})
    findings = {finding.check: finding async for finding in examine_broker(settings)}
    assert findings["topology"].verdict is Verdict.FAULT
    assert "`utterd topology apply`" in findings["topology"].message


async def test_jobs_that_nobody_takes_are_a_warning(settings, channel):
    """And so are lapsed and dead ones; no job is touched."""
    exchange = await channel.get_exchange(settings.exchanges.jobs)
    dead = await channel.get_exchange(settings.exchanges.dead)
    for target, key in (
        (exchange, "synthesize.batch"),
        (dead, DEAD_ROUTING_KEY),
        (dead, LAPSED_ROUTING_KEY),
    ):
        await target.publish(aio_pika.Message(b"{}"), key)
    findings = await verdicts(examine_broker(settings))
    assert findings["lane batch"] is Verdict.WARNING
    assert findings["lane interactive"] is Verdict.OK
    assert findings["dead jobs"] is findings["lapsed jobs"] is Verdict.WARNING
    queue = await channel.get_queue(settings.queues.of_lane(Lane.BATCH))
    job = await queue.get()
    assert not job.redelivered
    await job.ack()


async def test_a_missing_queue_of_the_dead_is_a_fault(settings, channel):
    """The daemons would pause at the first job that fails, and the doctor says what to do."""
    await channel.queue_delete(settings.queues.dead)
    findings = {finding.check: finding async for finding in examine_broker(settings)}
    assert findings["dead jobs"].verdict is Verdict.FAULT
    assert settings.queues.dead in findings["dead jobs"].message
    assert "`utterd topology apply`" in findings["dead jobs"].message


async def test_the_probe_of_dead_lettering_leaves_nothing(settings, sandbox):
    """Its queue is gone, and no daemon has seen its message."""
    assert (await verdicts(examine_broker(settings)))["dead-lettering"] is Verdict.OK
    queues = await Management(sandbox.management_url).request("GET", "queues", "/")
    prefix = f"{settings.queues.retry_prefix}doctor-"
    assert not [one["name"] for one in queues if one["name"].startswith(prefix)]


async def test_who_may_not_declare_tries_no_dead_lettering(settings):
    """It takes a queue."""
    passive = settings.model_copy(update={"declare_topology": False})
    assert "dead-lettering" not in await verdicts(examine_broker(passive))


async def test_a_broker_that_is_not_there_is_one_fault(settings):
    """Nothing else can be tried."""
    away = settings.model_copy(update={"url": SecretStr("amqp://user:s3cr3t@127.0.0.1:1/")})
    (finding,) = [one async for one in examine_broker(away)]
    assert finding.verdict is Verdict.FAULT
    assert "s3cr3t" not in finding.message


async def test_the_engine_is_loaded_and_speaks():
    """In one worker, however many the settings ask for."""
    findings = [one async for one in examine_engine(Settings())]
    assert [(one.check, one.verdict) for one in findings] == [
        ("package", Verdict.OK),
        ("model", Verdict.OK),
        ("speech", Verdict.OK),
    ]


async def test_an_engine_that_does_not_load_is_a_fault():
    """The daemon would not start either."""
    impatient = Settings().model_copy(update={"engine": EngineSettings(start_timeout_s=0.001)})
    findings = {one.check: one async for one in examine_engine(impatient)}
    assert findings["speech"].verdict is Verdict.FAULT
    assert "engine.start_timeout_s" in findings["speech"].message
