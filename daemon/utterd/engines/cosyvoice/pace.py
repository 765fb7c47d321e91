"""When the language model should take its next step, and when it should rather rest.

A step costs about as much for one row as for two: the weights are read once for all rows. Flow and
vocoder cost the same however many segments there are, and take most of the time. A model that
decodes every segment as it comes is soon far ahead of them, and then decodes what they send back
one row at a time, at four times the price of a row in a full batch.

So it rests while a decoded segment waits for a core. Its own core goes to that segment, hence none
is idle, and meanwhile other segments come to be decoded beside those in hand. A segment that is
decoded alone finds no queue and never waits. Nor does a full batch: waiting would not widen it.

Nor does it step before a core is its own (`Cores.claim`). Three threads on two cores take the
caches from each other, and a step over six rows then costs a sixth more; while it waits, a seventh
row comes.
"""


def should_step(in_hand: int, *, rows: int, queued: int) -> bool:
    """Whether to decode now.

    Args:
        in_hand: segments that are being decoded or wait for it, at least 1.
        rows: how many of them a step may cover.
        queued: segments that are decoded and wait for a core.
    """
    return queued == 0 or in_hand >= rows
