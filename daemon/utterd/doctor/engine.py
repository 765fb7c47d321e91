"""Whether the engine loads and speaks."""

import time

from utterd.app import make_engine_host, make_planner
from utterd.config import Settings
from utterd.doctor.finding import Findings, fault, ok, warning
from utterd.engines.host import engine_host
from utterd.engines.pace import Pace
from utterd.errors import ConfigurationError, JobError, NotNowError
from utterd.jobs.speak import speak
from utterd_schemas.job import Job

# Digits are read in every language.
_TEXT = "12345."
_TIMEOUT_S = 25.0


async def examine_engine(settings: Settings) -> Findings:
    """Describe the engine, load it in a worker as the daemon does, and let it speak."""
    try:
        planner = make_planner(settings)
        plan = planner.plan(Job(text=_TEXT))
    except (ConfigurationError, JobError) as error:
        yield fault("package", str(error))
        return
    info = planner.info
    yield ok("package", f"{info.name} {info.version}")
    yield ok("model", f"digest {info.bundle}")
    for caveat in info.caveats:
        yield warning("model", caveat)
    single = settings.engine.model_copy(update={"workers": 1})
    host = make_engine_host(settings.model_copy(update={"engine": single}), planner)
    started = time.monotonic()
    try:
        async with engine_host(host):
            loaded = time.monotonic()
            speech = await speak(plan, host, pace=Pace(urgent=True), timeout_s=_TIMEOUT_S)
            spoken = time.monotonic()
    except (ConfigurationError, NotNowError, JobError) as error:
        yield fault("speech", str(error))
        return
    audio_s = sum(clip.pcm.size for clip in speech.clips) / info.sample_rate_hz
    says = (
        f"loaded in {loaded - started:.1f} s, {audio_s:.1f} s of audio in {spoken - loaded:.2f} s"
    )
    if speech.reasons:
        gates = ", ".join(speech.reasons)
        yield warning(
            "speech",
            f"{says}, but it fails the gates {gates}: install the model's package again, or look at"
            " its bundle with `utterd bundle verify`; random weights do this too",
        )
    elif spoken - loaded > audio_s:
        yield warning("speech", f"{says}: slower than real time. Use a faster machine")
    else:
        yield ok("speech", says)
