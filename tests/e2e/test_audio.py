"""Jobs in, events and audio out: what the event says is what the file is."""

import asyncio
import io
from hashlib import sha256
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from utterd_schemas.audio import AudioFormat

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("daemon")]

RAW_SUBTYPES = {"pcm": "PCM_16", "ulaw": "ULAW", "alaw": "ALAW"}


def decode(audio, data):
    """Samples as int16, and their rate, read by nothing of ours."""
    raw = RAW_SUBTYPES.get(data["format"])
    layout = (
        {"samplerate": data["sample_rate_hz"], "channels": 1, "format": "RAW", "subtype": raw}
        if raw
        else {}
    )
    return soundfile.read(io.BytesIO(audio), dtype="int16", **layout)


async def test_the_event_tells_the_truth_about_every_format(bus):
    """Size, digest, rate, frames and duration are the decoded object's own (A-25)."""
    names = {audio_format: str(uuid4()) for audio_format in AudioFormat}
    for audio_format, job_id in names.items():
        await bus.publish({"job_id": job_id, "text": "Every format.", "format": audio_format})
    for audio_format, job_id in names.items():
        data = await bus.completed(job_id)
        audio = await bus.audio(data)
        samples, rate_hz = decode(audio, data)
        assert data["format"] == audio_format
        assert (data["bytes"], data["sha256"]) == (len(audio), sha256(audio).hexdigest())
        assert (data["sample_rate_hz"], data["frames"]) == (rate_hz, samples.size)
        assert data["duration_s"] == pytest.approx(samples.size / rate_hz)
        assert 0.5 < data["duration_s"] < 3.0
        assert np.abs(samples.astype(int)).max() > 1000


async def test_a_rate_and_a_bitrate_are_kept(bus):
    """What a job asks for is what it gets."""
    data = await bus.run("At another rate.", format="mp3", sample_rate_hz=44_100, bitrate_kbps=128)
    samples, rate_hz = decode(await bus.audio(data), data)
    assert (rate_hz, samples.size) == (44_100, data["frames"])


async def test_parallel_jobs_sound_like_serial_ones(bus):
    """Eight jobs of two sentences at once give the samples of one at a time (P-25)."""
    sentences = [
        "The first sentence is about 12 old boats.",
        "Another one tells of red and yellow apples!",
    ]
    # Variants that differ in their key and not in their sound.
    variants = [
        {"format": "pcm"},
        {"format": "wav"},
        {"format": "flac"},
        {"format": "pcm", "language": "en"},
    ]

    async def samples_of(data):
        return decode(await bus.audio(data), data)[0]

    jobs = [
        {"job_id": str(uuid4()), "text": text, "seed": 7} | variant
        for variant in variants
        for text in sentences
    ]
    for job in jobs:
        await bus.publish(job)
    parallel = [await bus.completed(job["job_id"]) for job in jobs]
    assert len({data["key"] for data in parallel}) == len(jobs)
    for text in sentences:
        serial = await bus.run(text, seed=7, format="pcm", language="en-US")
        assert not serial["cached"]
        expected = await samples_of(serial)
        for job, data in zip(jobs, parallel, strict=True):
            if job["text"] == text:
                assert np.array_equal(await samples_of(data), expected)


async def test_two_equal_jobs_at_once_are_spoken_once(bus):
    """Each has its event; one synthesis has begun, for one object."""
    job_ids = [str(uuid4()) for _ in range(2)]
    text = "Two want to hear the same sentence, which is long enough for them to meet."
    await asyncio.gather(*(bus.publish({"job_id": job_id, "text": text}) for job_id in job_ids))
    both = [await bus.completed(job_id) for job_id in job_ids]
    assert both[0]["sha256"] == both[1]["sha256"]
    begun = [
        event
        for event in bus.events
        if event["subject"] in job_ids and event["type"].endswith("started.v1")
    ]
    assert len(begun) == 1
    assert sorted(data["cached"] for data in both) == [False, True]


async def test_the_second_job_of_a_key_is_cached(bus):
    """It gets the same object without any synthesis, in no time."""
    first = await bus.run("Once is enough.")
    second = await bus.run("Once is enough.")
    assert (first["cached"], second["cached"]) == (False, True)
    assert first["timings"]["speak_s"] > 0 == second["timings"]["speak_s"]
    assert (first["sha256"], first["object_name"]) == (second["sha256"], second["object_name"])


async def test_marks_lie_beside_the_audio(bus):
    """The event tells where, and they fit the audio's length."""
    data = await bus.run("One sentence. And another.", marks=["sentence"])
    assert data["marks"]["key"].endswith(".marks.json")
    marks = await bus.audio({"object_name": data["marks"]["key"]})
    assert marks.count(b'"type": "sentence"') == 2


async def test_events_are_cloudevents(bus):
    """Attributes travel as headers, the started event comes first, and the sender's wishes last."""
    job_id = str(uuid4())
    reply = await bus.channel.declare_queue(exclusive=True)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await bus.publish(
        {"job_id": job_id, "text": "An event is a CloudEvent.", "labels": {"page": "3"}},
        correlation_id="c-1",
        reply_to=reply.name,
        headers={"traceparent": parent},
    )
    event = await bus.terminal(job_id)
    kinds = [one["type"] for one in bus.events if one["subject"] == job_id]
    assert kinds == ["io.utterd.synthesis.started.v1", "io.utterd.synthesis.completed.v1"]
    assert (event["specversion"], event["source"]) == ("1.0", "/utterd")
    assert event["data"]["labels"] == {"page": "3"}
    async with reply.iterator(timeout=10) as replies:
        copy = await anext(replies)
        await copy.ack()
    assert (copy.message_id, copy.correlation_id) == (event["id"], "c-1")
    assert copy.headers["traceparent"] == parent
