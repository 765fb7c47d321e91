"""From a job to a plan: what is spoken, by whom, in which form, under which key. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from utterd.audio.formats import OutputSpec, resolve_output
from utterd.engines.protocol import EngineInfo, EngineModule, Voice
from utterd.errors import (
    TextTooLongError,
    UnknownVoiceError,
    UnsupportedLanguageError,
    UnsupportedMarksError,
)
from utterd.store.keys import object_name
from utterd.text.front_end import FRONT_END_VERSION, SpokenSegment, read, runs_of
from utterd.text.lexicon import Lexicon
from utterd.text.script import guess_language, scripts_in, scripts_read_by
from utterd_schemas.audio import AudioFormat, MarkKind
from utterd_schemas.digest import SoundIdentity, seed_of
from utterd_schemas.job import Job

MARKS_EXTENSION = "marks.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided about a job before any work.

    Attributes:
        key: the request's hash.
        object_name: where the audio is stored.
        marks_name: where the timing marks are stored; None when the job wants none.
        engine: name of the engine.
        voice: name of the voice within the engine.
        bundle: digest of the model.
        language: BCP 47 tag of what is spoken.
        speed: speaking rate.
        seed: of every random choice.
        native_rate_hz: of the engine's samples.
        output: container, codec, rate, bitrate.
        segments: what is spoken.
    """

    key: str
    object_name: str
    marks_name: str | None
    engine: str
    voice: str
    bundle: str
    language: str
    speed: float
    seed: int
    native_rate_hz: int
    output: OutputSpec
    segments: tuple[SpokenSegment, ...]

    def segment_name(self, number: int) -> str:
        """Where one segment's audio is stored, for a job that wants its audio early.

        Args:
            number: its place in the text, from 1.
        """
        extension = self.output.traits.extension
        return f"{self.object_name.removesuffix(extension)}{number}.{extension}"

    @property
    def full_voice(self) -> str:
        """As `engine/voice`."""
        return f"{self.engine}/{self.voice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans jobs for one engine.

    Attributes:
        info: the engine's description.
        module: its front end.
        default_voice: of jobs that name none.
        aliases: other names for voices.
        default_format: of jobs that name none.
        max_text_chars: the longest text of a job.
        max_pauses_s: how long its pauses may be in all.
        prefix: of every object's name.
        lexicon: spoken forms of words.
    """

    info: EngineInfo
    module: EngineModule
    default_voice: str
    aliases: Mapping[str, str]
    default_format: AudioFormat
    max_text_chars: int
    max_pauses_s: float
    prefix: str
    lexicon: Lexicon = field(default_factory=Lexicon)

    def plan(self, job: Job) -> Plan:
        """Decide everything about a job.

        Raises:
            PermanentError: the job can't be spoken as it stands; its class says why.
        """
        script = self._script(job)
        runs = runs_of(text=job.text, ssml=job.ssml, lexicon=self.lexicon)
        voice = self.voice(job.voice or self.default_voice)
        language = self._language(job, "".join(run.text for run in runs), voice)
        output = resolve_output(
            job.format or self.default_format,
            sample_rate_hz=job.sample_rate_hz,
            bitrate_kbps=job.bitrate_kbps,
            native_rate_hz=self.info.sample_rate_hz,
        )
        self._check_marks(job)
        segments = read(runs, partial(self.module.read, language=language, normalize=job.normalize))
        self._check_pauses(segments)
        key = SoundIdentity(
            script=script,
            is_ssml=job.ssml is not None,
            voice=f"{self.info.name}/{voice.name}",
            language=job.language,
            speed=job.speed,
            normalize=job.normalize,
            seed=job.seed,
            lexicon=self.lexicon.digest,
            front_end=FRONT_END_VERSION,
            bundle=self.info.bundle,
            format=output.format,
            sample_rate_hz=output.sample_rate_hz,
            bitrate_kbps=output.bitrate_kbps,
        ).key()
        return Plan(
            key=key,
            object_name=object_name(self.prefix, key, output.traits.extension),
            marks_name=object_name(self.prefix, key, MARKS_EXTENSION) if job.marks else None,
            engine=self.info.name,
            voice=voice.name,
            bundle=self.info.bundle,
            language=language,
            speed=job.speed,
            seed=seed_of(key) if job.seed is None else job.seed,
            native_rate_hz=self.info.sample_rate_hz,
            output=output,
            segments=segments,
        )

    def _script(self, job: Job) -> str:
        """The text or the SSML, whichever is given."""
        script = job.text or job.ssml or ""
        if len(script) > self.max_text_chars:
            raise TextTooLongError(
                f"the text has {len(script)} characters, the limit is {self.max_text_chars}:"
                " cut it into several jobs",
                max_text_chars=self.max_text_chars,
            )
        return script

    def voice(self, name: str) -> Voice:
        """The voice of a name or an alias.

        Raises:
            UnknownVoiceError: there is none; the message lists all.
        """
        own_name = name.removeprefix(f"{self.info.name}/")
        full_name = self.aliases.get(name) or self.aliases.get(own_name, name)
        for voice in self.info.voices:
            if full_name == f"{self.info.name}/{voice.name}":
                return voice
        known = [f"{self.info.name}/{voice.name}" for voice in self.info.voices]
        raise UnknownVoiceError(
            f"no such voice: ask for one of {', '.join([*known, *self.aliases])}",
            voices=[*known],
            aliases=[*self.aliases],
        )

    def _language(self, job: Job, text: str, voice: Voice) -> str:
        """The language to speak, and proof that the voice can read all of the text."""
        if job.language != "auto" and job.language.split("-")[0] not in _primary(voice.languages):
            raise UnsupportedLanguageError(
                f"the voice speaks {', '.join(voice.languages)}: choose another voice, or leave"
                " `language` out",
                languages=[*voice.languages],
            )
        unread = scripts_in(text) - scripts_read_by(voice.languages)
        if unread:
            raise UnsupportedLanguageError(
                f"the text has {', '.join(sorted(unread))} letters, which a voice for"
                f" {', '.join(voice.languages)} can't read: choose a voice that speaks the"
                " text's language",
                scripts=[*sorted(unread)],
                languages=[*voice.languages],
            )
        if job.language != "auto":
            return job.language
        guess = guess_language(text, default=voice.languages[0])
        return guess if guess in _primary(voice.languages) else voice.languages[0]

    def _check_pauses(self, segments: tuple[SpokenSegment, ...]) -> None:
        pauses_s = sum(segment.pause_after_s for segment in segments)
        if pauses_s > self.max_pauses_s:
            raise TextTooLongError(
                f"the pauses of the text are {pauses_s:.0f} s in all, the limit is"
                f" {self.max_pauses_s:g} s: shorten the breaks, or cut the text into several jobs",
                max_pauses_s=self.max_pauses_s,
            )

    def _check_marks(self, job: Job) -> None:
        if MarkKind.WORD in job.marks:
            raise UnsupportedMarksError(
                f"{self.info.name} tells no word timings: ask for `sentence` marks",
                marks=[MarkKind.SENTENCE.value],
            )


def _primary(languages: tuple[str, ...]) -> frozenset[str]:
    return frozenset(tag.split("-")[0] for tag in languages)
