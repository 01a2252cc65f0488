"""What goes wrong with a claim, in words for a person."""

from dataclasses import dataclass

from headrace.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Owner:
    """Who has something, as the broker that grants it knows it."""

    client_id: str
    address: str
    since_ms: int
    """For how long."""

    def __str__(self) -> str:
        return f"{self.client_id!r} at {self.address}"


class AlreadyOwned(KafkaError):
    """A claim was refused: somebody else has the resource, or had a later generation of it."""

    def __init__(self, group: str, resource: str, generation: int, owner: Owner | None, asked: int | None) -> None:
        self.group = group
        self.resource = resource
        self.generation = generation
        self.owner = owner
        asked_for = "" if asked is None else f", which {asked} does not displace"
        if owner is None:
            text = f"{resource} of group {group!r} was last owned at generation {generation}{asked_for}"
        else:
            held = f"for {owner.since_ms / 1000:.1f} s, at generation {generation}"
            text = f"{resource} of group {group!r} is owned by {owner} {held}{asked_for}"
        super().__init__(ErrorCode.ILLEGAL_GENERATION, text)


class OwnershipLost(KafkaError):
    """What works only while an ownership is held was used while it was not."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.PRODUCER_FENCED, message)
