"""Counters that the hot path bumps, and their Prometheus text.

`kafka.server:type=T,name=N,k=v` is written as `kafka_server_t_n{k="v"}`; a PerSec meter as a `_total` counter. Series
per partition are a page of their own, since there may be a hundred thousand of them.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import ErrorCode
from headrace.wire.apis import APIS


class Sample(NamedTuple):
    suffix: str
    """What follows the name of the family: mostly labels."""
    value: float


class Family(NamedTuple):
    name: str
    kind: str
    samples: list[Sample]

    def text(self) -> str:
        lines = [f"# TYPE {self.name} {self.kind}\n"]
        lines += [f"{self.name}{suffix} {value}\n" for suffix, value in self.samples]
        return "".join(lines)


def gauge(name: str, value: float) -> Family:
    return Family(name, "gauge", [Sample("", value)])


def counter(name: str, value: float) -> Family:
    return Family(name, "counter", [Sample("", value)])


def summary(name: str, total: float, count: int) -> Family:
    return Family(name, "summary", [Sample("_sum", total), Sample("_count", count)])


def labelled(**labels: object) -> str:
    inside = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return "{" + inside + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Histogram:
    """Whole numbers, counted by the smallest of these bounds that holds them."""

    def __init__(self, *bounds: int) -> None:
        self.total = 0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, value: int) -> None:
        self.total += value
        self._counts[bisect_left(self._bounds, value)] += 1

    def family(self, name: str) -> Family:
        samples, so_far = [], 0
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            so_far += count
            samples.append(Sample(f"_bucket{labelled(le=bound)}", so_far))
        return Family(name, "histogram", [*samples, Sample("_sum", self.total), Sample("_count", so_far)])


class Metrics:
    """Plain numbers: adding to one costs less than asking whether somebody looks."""

    def __init__(self) -> None:
        self.requests = dict.fromkeys(APIS, 0)
        self.request_bytes = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.batches_in = 0
        self.messages_in = 0
        self.produce_failures: dict[int, int] = {}
        self.fetch_failures = 0

    def received(self, api_key: int, size: int) -> None:
        self.requests[api_key] += 1
        self.request_bytes += size

    def produce_failed(self, error: ErrorCode) -> None:
        self.produce_failures[error] = self.produce_failures.get(error, 0) + 1

    def families(self) -> Iterator[Family]:
        topic_metrics = "kafka_server_brokertopicmetrics_"
        yield counter(topic_metrics + "bytesin_total", self.bytes_in)
        yield counter(topic_metrics + "bytesout_total", self.bytes_out)
        yield counter(topic_metrics + "messagesin_total", self.messages_in)
        yield counter(topic_metrics + "totalproducerequests_total", self.requests[0])
        yield counter(topic_metrics + "totalfetchrequests_total", self.requests[1])
        yield Family(
            topic_metrics + "failedproducerequests_total",
            "counter",
            [Sample(labelled(code=int(code)), count) for code, count in sorted(self.produce_failures.items())]
            or [Sample("", 0)],
        )
        yield counter(topic_metrics + "failedfetchrequests_total", self.fetch_failures)
        yield Family(
            "kafka_network_requestmetrics_requests_total",
            "counter",
            [Sample(labelled(request=APIS[key].name), count) for key, count in sorted(self.requests.items())],
        )
        yield counter("headrace_request_bytes_total", self.request_bytes)
        yield counter("headrace_batches_in_total", self.batches_in)
