"""What is counted of ownership."""

from collections.abc import Iterator

from headrace.broker.metrics import Family, counter, gauge, summary

_PREFIX = "headrace_own_"


class OwnMetrics:
    def __init__(self) -> None:
        self.owned = 0
        self.standbys = 0
        self.grants = 0
        self.takeovers = 0
        self.resumes = 0
        self.resets = 0
        self.rejections = 0
        self.severed = 0
        self.denied_produce = 0
        self.denied_fetch = 0
        self.confirm_timeouts = 0
        self.confirmed = 0
        self.confirmed_ms = 0

    def families(self) -> Iterator[Family]:
        yield gauge(_PREFIX + "ownedresources", self.owned)
        yield gauge(_PREFIX + "ownstandbys", self.standbys)
        yield counter(_PREFIX + "owngrants_total", self.grants)
        yield counter(_PREFIX + "owntakeovers_total", self.takeovers)
        yield counter(_PREFIX + "ownresumes_total", self.resumes)
        yield counter(_PREFIX + "ownresets_total", self.resets)
        yield counter(_PREFIX + "ownrejections_total", self.rejections)
        yield counter(_PREFIX + "ownseveredconnections_total", self.severed)
        yield counter(_PREFIX + "owndeniedproduce_total", self.denied_produce)
        yield counter(_PREFIX + "owndeniedfetch_total", self.denied_fetch)
        yield counter(_PREFIX + "ownconfirmtimeouts_total", self.confirm_timeouts)
        yield summary(_PREFIX + "ownconfirmms", self.confirmed_ms, self.confirmed)
