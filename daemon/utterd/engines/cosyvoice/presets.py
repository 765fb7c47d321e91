"""The voices of the release, and the other names by which each is asked for."""

from utterd.engines.protocol import DEFAULT_VOICE

PRESETS = (
    ("中文女", "chinese_female", "zh"),
    ("中文男", "chinese_male", "zh"),
    ("日语男", "japanese_male", "ja"),
    ("粤语女", "cantonese_female", "yue"),
    ("英文女", "english_female", "en"),
    ("英文男", "english_male", "en"),
    ("韩语女", "korean_female", "ko"),
)
"""Name in the checkpoint, name in ASCII, own language; in the order of their numbers."""

RESERVED_NAMES = frozenset(
    {
        DEFAULT_VOICE,
        *map(str, range(len(PRESETS))),
        *(ascii_name for _, ascii_name, _ in PRESETS),
    }
)
"""What no voice of a checkpoint may be called, for it means a preset."""
