from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from utterd.ops.metrics import Metrics
from utterd_schemas.audio import AudioFormat
from utterd_schemas.events import CompletedData, Quality, Timings

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def metrics():
    return Metrics(now=lambda: NOW)


def job(**changes):
    return CompletedData(
        **{
            "job_id": "secret-id",
            "key": "0" * 64,
            "bucket": "speech",
            "object_name": "00/secret.wav",
            "url": "s3://speech/00/secret.wav",
            "content_type": "audio/wav",
            "format": AudioFormat.WAV,
            "sample_rate_hz": 24_000,
            "channels": 1,
            "duration_s": 2.0,
            "frames": 48_000,
            "bytes": 96_044,
            "sha256": "0" * 64,
            "cached": False,
            "engine": "hibari",
            "voice": "hibari/heart",
            "bundle": "b",
            "language": "en",
            "attempts": 1,
            "quality": Quality(verdict="ok"),
            "timings": Timings(plan_s=0.001, speak_s=0.5, total_s=0.6),
            "real_time_factor": 0.25,
        }
        | changes
    )


def samples(metrics):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def test_a_completed_job_is_counted_with_its_times_and_its_audio(metrics):
    """Outcome, steps that it had, seconds of audio and real-time factor."""
    metrics.job_completed("batch", job())
    seen = samples(metrics)
    assert seen["utterd_jobs_total", ("lane", "batch"), ("outcome", "completed")] == 1
    assert seen["utterd_job_seconds_sum", ("lane", "batch")] == 0.6
    assert seen["utterd_job_step_seconds_sum", ("step", "speak")] == 0.5
    assert ("utterd_job_step_seconds_sum", ("step", "store")) not in seen
    assert seen["utterd_audio_seconds_total", ("engine", "hibari")] == 2.0
    assert seen["utterd_real_time_factor_sum", ("engine", "hibari")] == 0.25
    assert metrics.audio_s() == 2.0


def test_a_cached_job_makes_no_audio(metrics):
    """It counts as cached, and adds nothing to what was made here."""
    metrics.job_completed("batch", job(cached=True, real_time_factor=None))
    assert metrics.settled() == {"cached": 1}
    assert metrics.audio_s() == 0


def test_suspect_audio_is_counted_by_its_reasons(metrics):
    """Each gate that failed has a counter of its own."""
    quality = Quality(verdict="suspect", reasons=("clipped", "too_long"))
    metrics.job_completed("batch", job(quality=quality))
    seen = samples(metrics)
    assert seen["utterd_suspect_audio_total", ("reason", "clipped")] == 1
    assert seen["utterd_suspect_audio_total", ("reason", "too_long")] == 1


def test_nothing_that_a_publisher_chose_is_a_label(metrics):
    """Ids, keys and names of objects would make series without end, and tell of the jobs."""
    metrics.job_completed("interactive", job())
    metrics.attempt_failed("interactive", "unknown_voice", "failed")
    text = metrics.exposition().decode()
    assert "secret" not in text
    assert "0" * 64 not in text


def test_outcomes_are_summed_over_the_lanes(metrics):
    """The status page tells of the daemon as a whole."""
    metrics.job_completed("batch", job())
    metrics.job_completed("interactive", job())
    metrics.attempt_failed("batch", "worker_died", "postponed")
    assert metrics.settled() == {"completed": 2, "postponed": 1}


def test_only_the_last_failures_are_kept(metrics):
    """A year of failures takes no more memory than a day of them."""
    for number in range(100):
        metrics.attempt_failed("batch", f"code-{number}", "failed")
    assert [failure.code for failure in metrics.last_failures][-1] == "code-99"
    assert len(metrics.last_failures) == 20
    assert metrics.last_failures[-1].at == NOW


def test_a_gauge_is_read_when_it_is_scraped(metrics):
    """A moment's value is never an old one."""
    depth = [1.0]
    metrics.watch("depth_m", "How deep it is.", lambda: depth[0])
    assert samples(metrics)["depth_m",] == 1
    depth[0] = 2
    assert samples(metrics)["depth_m",] == 2
