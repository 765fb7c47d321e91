"""What a job means."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utterd.engines.protocol import Voice
from utterd.errors import (
    EmptyTextError,
    PermanentError,
    TextTooLongError,
    UnknownVoiceError,
    UnsupportedLanguageError,
    UnsupportedMarksError,
    UnsupportedOutputError,
)
from utterd.text.lexicon import Lexicon
from utterd_schemas.job import Job

TEXT = "It costs $5 today."


@pytest.fixture
def plan_of(planner):
    def plan(**fields):
        return planner.plan(Job.model_validate({"text": TEXT} | fields))

    return plan


def test_a_plan_holds_all_decisions(plan_of):
    """Voice, language, output, seed and names are settled before any work."""
    plan = plan_of(marks=["sentence"])
    assert plan.full_voice == "tone/low"
    assert (plan.language, plan.speed, plan.native_rate_hz) == ("en", 1.0, 24_000)
    assert (plan.output.format, plan.output.sample_rate_hz) == ("wav", 24_000)
    assert plan.object_name == f"speech/{plan.key[:2]}/{plan.key}.wav"
    assert plan.marks_name == f"speech/{plan.key[:2]}/{plan.key}.marks.json"
    assert plan.seed == int(plan.key[:8], 16)
    assert [segment.spoken for segment in plan.segments] == ["It costs five dollars today."]


def test_the_same_job_has_the_same_plan(plan_of):
    """Planning depends on nothing but the job."""
    assert plan_of() == plan_of()


def test_words_of_the_lexicon_are_spoken_and_change_the_key(planner):
    """Also in SSML, before sentences are cut; the job's language is that of what is spoken."""
    known = replace(planner, lexicon=Lexicon({"Dr.": "Doctor", "东京": "Tokyo"}))
    for job in (Job(text="Dr. Lee is in 东京."), Job(ssml="<speak>Dr. Lee is in 东京.</speak>")):
        plan = known.plan(job)
        assert [segment.spoken for segment in plan.segments] == ["Doctor Lee is in Tokyo."]
        assert plan.language == "en"
    plain = Job(text="Nothing of it.")
    assert known.plan(plain).key != planner.plan(plain).key
    assert replace(planner, lexicon=Lexicon()).plan(plain).key == planner.plan(plain).key


def test_each_input_that_changes_the_sound_changes_the_key(plan_of):
    """Jobs that differ in one of them have different keys."""
    variants = [
        {},
        {"text": "It costs $6 today."},
        {"voice": "tone/high"},
        {"language": "en"},
        {"speed": 1.1},
        {"format": "flac"},
        {"format": "mp3"},
        {"format": "mp3", "bitrate_kbps": 32},
        {"sample_rate_hz": 16_000},
        {"normalize": False},
        {"seed": 0},
        {"seed": 1},
    ]
    keys = {plan_of(**fields).key for fields in variants}
    assert len(keys) == len(variants)


@pytest.mark.parametrize(
    "fields",
    [
        {"voice": "default"},
        {"voice": "tone/low"},
        {"format": "wav"},
        {"sample_rate_hz": 24_000},
        {"speed": 1},
        {"normalize": True},
        {"job_id": "a"},
        {"labels": {"a": "b"}},
        {"marks": ["sentence"]},
        {"expires_at": "2030-01-31T12:00:00Z"},
    ],
    ids=str,
)
def test_what_does_not_change_the_sound_leaves_the_key(plan_of, fields):
    """Defaults written out, and fields about the job itself, share the audio."""
    assert plan_of(**fields).key == plan_of().key


def test_composed_and_decomposed_letters_are_one_text(plan_of):
    """Both spellings of an accent have one key and are spoken alike (T-58)."""
    composed = plan_of(text="Caf\u00e9 na\u00efve jalape\u00f1o.")
    assert composed == plan_of(text="Cafe\u0301 nai\u0308ve jalapen\u0303o.")
    assert composed.segments[0].spoken == "Caf\u00e9 na\u00efve jalape\u00f1o."


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\r\n\u00a0\u3000 ",
        "\U0001f600\U0001f389\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "...!?",
        "\0\ufeff\u200b",
        "\u3002\u3001\uff01",
    ],
    ids=ascii,
)
def test_a_text_with_nothing_to_say_is_refused(plan_of, text):
    """White space, emoji and punctuation alone are no speech (T-47, T-48)."""
    with pytest.raises(EmptyTextError, match="at least one letter or digit"):
        plan_of(text=text)


def test_half_a_surrogate_pair_is_not_spoken(plan_of):
    """What JSON can spell and UTF-8 can't carry is dropped (T-56)."""
    assert [segment.spoken for segment in plan_of(text="price \ud83d ok").segments] == ["price  ok"]


def test_an_unknown_voice_is_told_the_known_ones(plan_of):
    """The refusal lists voices and aliases, and repeats nothing of the job."""
    with pytest.raises(UnknownVoiceError) as caught:
        plan_of(voice="tone/zebra")
    assert caught.value.detail == {
        "voices": ["tone/low", "tone/high"],
        "aliases": ["default", "bright"],
    }
    assert "tone/high" in caught.value.message
    assert "zebra" not in caught.value.message


def test_an_alias_stands_for_its_voice(plan_of):
    """The plan names the voice itself."""
    assert plan_of(voice="bright").full_voice == "tone/high"


def test_the_longest_text_is_legal_and_a_longer_one_is_not(plan_of):
    """The limit is in the refusal's detail."""
    assert plan_of(text="a" * 1000).segments
    with pytest.raises(TextTooLongError) as caught:
        plan_of(text="a" * 1001)
    assert caught.value.detail == {"max_text_chars": 1000}


def test_a_rate_that_the_codec_cannot_carry_is_refused(plan_of):
    """The refusal lists the legal rates; without a wish the next legal one is taken."""
    with pytest.raises(UnsupportedOutputError) as caught:
        plan_of(format="opus", sample_rate_hz=22_050)
    assert caught.value.detail["legal_sample_rates_hz"] == [8000, 12_000, 16_000, 24_000, 48_000]
    assert plan_of(format="opus").output.sample_rate_hz == 24_000


def test_a_language_that_the_voice_does_not_speak_is_refused(plan_of):
    """By its tag as well as by the text's own letters."""
    with pytest.raises(UnsupportedLanguageError, match="choose another voice"):
        plan_of(language="zh")
    with pytest.raises(UnsupportedLanguageError, match="Han letters"):
        plan_of(text="你好")
    assert plan_of(text="你好", voice="tone/high").language == "zh"
    assert plan_of(language="en-GB").language == "en-GB"


def test_word_marks_are_refused_where_the_engine_tells_none(plan_of):
    """The refusal says which marks there are."""
    with pytest.raises(UnsupportedMarksError) as caught:
        plan_of(marks=["word", "sentence"])
    assert caught.value.detail == {"marks": ["sentence"]}


def test_the_jobs_own_seed_is_used(plan_of):
    """Zero is a seed like any other."""
    assert plan_of(seed=0).seed == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=300))
def test_any_text_is_planned_or_refused(planner, text):
    """Segments keep to the engine's limit, and no other error is raised."""
    try:
        plan = planner.plan(Job(text=text, voice="tone/high"))
    except PermanentError:
        return
    assert all(0 < len(segment.text) <= 60 for segment in plan.segments)


def test_hours_of_pauses_are_refused(planner):
    """A few bytes of markup do not make an object of hundreds of megabytes."""
    strict = replace(planner, max_pauses_s=60.0)
    ssml = "<speak>" + 'a<break time="10s"/>' * 7 + "</speak>"
    with pytest.raises(TextTooLongError, match="the pauses of the text are 70 s"):
        strict.plan(Job(ssml=ssml))


@pytest.mark.parametrize("name", ["0", "calm", "many/calm", "many/0", "many/沉"])
def test_a_voice_is_found_by_each_of_its_names(planner, name):
    """An alias needs no engine before it, and may have one."""
    voice = Voice(name="沉", languages=("zh",), description="calm", aliases=("0", "calm"))
    info = replace(planner.info, name="many", voices=(voice,))
    assert replace(planner, info=info, aliases=info.aliases).voice(name) is voice
