"""How soon the segments of a job are wanted, and in whose company."""


class Pace:
    """Shared by all segments of a job; it can become urgent while they wait, and stays so.

    Args:
        urgent: whether they go before patient ones from the beginning.
        alone: whether nothing else may be spoken in the same worker meanwhile.
    """

    def __init__(self, *, urgent: bool = False, alone: bool = False) -> None:
        self.is_urgent = urgent
        self.is_alone = alone

    def hurry(self) -> None:
        """Somebody waits for them now."""
        self.is_urgent = True
