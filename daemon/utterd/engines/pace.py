"""How soon the segments of a job are wanted."""


class Pace:
    """Shared by all segments of a job; it can become urgent while they wait, and stays so.

    Args:
        urgent: whether they go before patient ones from the beginning.
    """

    def __init__(self, *, urgent: bool = False) -> None:
        self.is_urgent = urgent

    def hurry(self) -> None:
        """Somebody waits for them now."""
        self.is_urgent = True
