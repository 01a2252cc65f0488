"""What is counted of ownership."""

from collections.abc import Iterator

from headrace.broker.metrics import Family, Sample, counter, gauge, labelled

_PREFIX = "headrace_"
_CONFIRM_MS = (1, 2, 5, 10, 25, 50, 100, 500, 1_000, 5_000)


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
        self._confirmed_within = dict.fromkeys(_CONFIRM_MS, 0)

    def confirmed_after(self, lasted_ms: int) -> None:
        self.confirmed += 1
        self.confirmed_ms += lasted_ms
        for limit_ms in self._confirmed_within:
            self._confirmed_within[limit_ms] += lasted_ms <= limit_ms

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
        within = [Sample("_bucket" + labelled(le=ms), count) for ms, count in self._confirmed_within.items()]
        totals = [Sample('_bucket{le="+Inf"}', self.confirmed), Sample("_sum", self.confirmed_ms)]
        yield Family(_PREFIX + "ownconfirmms", "histogram", [*within, *totals, Sample("_count", self.confirmed)])
