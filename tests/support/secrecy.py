"""What no log may hold: texts of jobs, and secrets."""

import json
from pathlib import Path

from utterd.sandbox import rabbitmq, s3

# A shorter one may be a word that a log uses as well.
_MIN_CHARS = 8

SECRETS = {f":{rabbitmq.PASSWORD}@", s3.SECRET_ACCESS_KEY}

texts: set[str] = set()
"""All that tests have had spoken so far."""


def note(body: bytes) -> None:
    """Remember the text of a job that is being published."""
    try:
        job = json.loads(body)
    except (ValueError, RecursionError):
        return
    if isinstance(job, dict):
        for field in ("text", "ssml"):
            text = job.get(field)
            if isinstance(text, str) and len(text) >= _MIN_CHARS:
                texts.add(text)


def leaks(log: Path) -> set[str]:
    """The secrets and the texts that a log holds."""
    content = log.read_text(errors="replace")
    escaped = {json.dumps(text)[1:-1]: text for text in texts}
    return {text for form, text in escaped.items() if form in content or text in content} | {
        secret for secret in SECRETS if secret in content
    }
