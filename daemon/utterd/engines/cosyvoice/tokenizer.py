"""Text tokens: the multilingual byte-pair encoding of OpenAI's Whisper, which CosyVoice reads.

`assets/multilingual.tiktoken` is Whisper's own file (MIT, its licence beside it). The ids above
its ranks are Whisper's control tokens. The embedding table has rows for them, but nothing that a
user writes becomes one: `<|zh|>` in a text is five tokens of punctuation and letters.
"""

from base64 import b64decode
from functools import cache
from hashlib import sha256
from importlib.resources import files

import numpy as np
import tiktoken
from numpy.typing import NDArray

VOCABULARY_SIZE = 51_866
"""Rows of the model's text embedding: 50,257 byte pairs and 1,609 control tokens."""

_LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su yue"
)
_TIMESTAMPS = 1501
# A word with its space, a number, punctuation, or white space: as GPT-2 cuts a text.
_PIECES = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


class Tokenizer:
    """Whisper's multilingual vocabulary. Safe to use from several threads."""

    def __init__(self, ranks: bytes) -> None:
        byte_pairs = {
            b64decode(pair): int(rank) for pair, rank in map(bytes.split, ranks.splitlines())
        }
        controls = {
            f"<|{name}|>": rank for rank, name in enumerate(_control_names(), start=len(byte_pairs))
        }
        self._encoding = tiktoken.Encoding(
            "multilingual",
            pat_str=_PIECES,
            mergeable_ranks=byte_pairs,
            special_tokens=controls,
            explicit_n_vocab=VOCABULARY_SIZE,
        )

    def encode(self, text: str) -> NDArray[np.int64]:
        """Token ids of a text, shape (s,), without a start token and never a control token."""
        return np.array(self._encoding.encode_ordinary(text), np.int64)

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        return len(self._encoding.encode_ordinary(text))

    def control_id(self, name: str) -> int:
        """Id of a control token, such as `zh` for `<|zh|>`.

        Raises:
            KeyError: there is none of that name.
        """
        return self._encoding.encode_single_token(f"<|{name}|>")

    def decode(self, ids: NDArray[np.int64]) -> str:
        """The text of some ids; bytes that are no UTF-8 become U+FFFD."""
        return self._encoding.decode(ids.tolist())


def _control_names() -> list[str]:
    """Names of the control tokens, in the order of their ids."""
    tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    timestamps = [f"{number * 0.02:.2f}" for number in range(_TIMESTAMPS)]
    return ["endoftext", "startoftranscript", *_LANGUAGES.split(), *tasks, *timestamps]


@cache
def load_tokenizer() -> Tokenizer:
    """The packaged vocabulary, read at the first call."""
    return Tokenizer(_packaged_ranks())


@cache
def vocabulary_digest() -> str:
    """SHA-256 of the packaged vocabulary."""
    return sha256(_packaged_ranks()).hexdigest()


def _packaged_ranks() -> bytes:
    return files(__package__).joinpath("assets/multilingual.tiktoken").read_bytes()
