"""The audio formats that a job may ask for."""

from enum import StrEnum


class AudioFormat(StrEnum):
    """Container and codec of the stored object, in one word."""

    WAV = "wav"
    FLAC = "flac"
    MP3 = "mp3"
    OPUS = "opus"
    VORBIS = "vorbis"
    PCM = "pcm"
    ULAW = "ulaw"
    ALAW = "alaw"


class MarkKind(StrEnum):
    """What a timing mark stands for."""

    SENTENCE = "sentence"
    WORD = "word"
