"""Sentences of the kind that a speech service is asked for, each only once."""

from itertools import islice, product

_OPENINGS = (
    "",
    "Good morning, and welcome aboard.",
    "Thank you for waiting.",
    "Please listen carefully.",
    "Here is the news of the hour.",
)
_SUBJECTS = (
    "The express to the coast",
    "The last bus to the harbour",
    "Your parcel from the mountain village",
    "The guided tour of the old observatory",
    "The evening concert in the park",
    "The repair of the northern bridge",
)
_VERBS = ("is expected", "has been moved", "will begin", "was confirmed")
_TIMES = (
    "shortly after half past nine.",
    "on the second Thursday of October.",
    "as soon as the weather allows it.",
    "a little earlier than we had announced.",
)


def announcements(count: int) -> list[str]:
    """Texts of one or two sentences and about 100 characters; at most 480."""
    parts = product(_TIMES, _VERBS, _SUBJECTS, _OPENINGS)
    return [
        f"{opening} {subject} {verb} {time}".lstrip()
        for time, verb, subject, opening in islice(parts, count)
    ]


def bulletins(count: int) -> list[str]:
    """Texts of four sentences or more and about 330 characters; at most 120."""
    texts = announcements(4 * count)
    return [" ".join(texts[number::count]) for number in range(count)]


def notices(numbers: range) -> list[str]:
    """Texts of one sentence and about 30 characters, one for each number."""
    return [f"Parcel {number} is at the counter." for number in numbers]
