"""A transactional id at its coordinator."""

from headrace.broker.coordinators.markers import Ending
from headrace.core.transaction import Transaction
from headrace.core.transactional_id import attempt_of


class Kept:
    """Its transaction is the one in force; None while the first is not committed."""

    __slots__ = ("attempt", "deadline_ms", "ending", "index", "is_pending", "transaction", "transactional_id")

    def __init__(self, index: int, transactional_id: str, known: Transaction | None) -> None:
        self.index = index
        self.transactional_id = transactional_id
        self.attempt = attempt_of(transactional_id)
        """Whose it is, if it belongs to a query."""
        self.transaction = known
        self.is_pending = False
        self.deadline_ms = 0
        """Monotonic: when an open transaction has had its time."""
        self.ending: Ending | None = None
