"""What monitoring is told of compaction, under Kafka's names, and how far the rounds are that run now."""

from collections.abc import Iterator

from headrace.broker.metrics import Family, Sample, counter, gauge, labelled
from headrace.broker.partitions import Hosted
from headrace.storage.cleaning import Plan, Worked

CLEANER = "kafka_log_logcleaner_"
MANAGER = "kafka_log_logcleanermanager_"


class _Round:
    def __init__(self, bytes_total: int, now_ms: int) -> None:
        self.bytes_total = bytes_total
        self.began_ms = now_ms
        self.bytes_read = self.bytes_written = 0


class CleanerStats:
    def __init__(self) -> None:
        self.uncleanable: dict[Hosted, str] = {}
        """Logs that compaction leaves alone, and why."""
        self.rounds = 0
        self.bytes_read = self.bytes_written = 0
        self._running: dict[Hosted, _Round] = {}
        self._dirty_ratio_max = 0.0
        self._overdue_ms_max = 0
        self._looked_ms: int | None = None
        self._fill_max = 0.0
        self._recopied = 0.0
        self._clean_ms_max = 0

    def looked(self, dirty_ratio_max: float, overdue_ms_max: int, now_ms: int) -> None:
        self._dirty_ratio_max = dirty_ratio_max
        self._overdue_ms_max = overdue_ms_max
        self._looked_ms = now_ms

    def began(self, partition: Hosted, plan: Plan, now_ms: int) -> None:
        dirty_bytes = sum(source.size for source in plan.sources if source.end_offset > plan.first_dirty_offset)
        # The dirty part is read twice: for its keys, and with all the rest.
        self._running[partition] = _Round(dirty_bytes + sum(source.size for source in plan.sources), now_ms)

    def mapped(self, fill: float) -> None:
        self._fill_max = max(self._fill_max, fill)

    def worked(self, partition: Hosted, step: Worked) -> None:
        running = self._running[partition]
        running.bytes_read += step.bytes_read
        running.bytes_written += step.bytes_written
        self.bytes_read += step.bytes_read
        self.bytes_written += step.bytes_written

    def ended(self, partition: Hosted, is_done: bool, now_ms: int) -> None:
        ended = self._running.pop(partition)
        if is_done:
            self.rounds += 1
            self._recopied = ended.bytes_written / ended.bytes_read if ended.bytes_read else 0.0
            self._clean_ms_max = max(self._clean_ms_max, now_ms - ended.began_ms)

    def families(self, now_ms: int) -> Iterator[Family]:
        yield gauge(CLEANER + "cleaner_recopy_percent", round(100 * self._recopied))
        yield gauge(CLEANER + "max_clean_time_secs", self._clean_ms_max // 1000)
        yield gauge(CLEANER + "max_buffer_utilization_percent", round(100 * self._fill_max))
        yield gauge(CLEANER + "max_compaction_delay_secs", self._overdue_ms_max // 1000)
        yield gauge(CLEANER + "deadthreadcount", 0)  # a round that fails is reported, and does not end the others
        yield gauge(MANAGER + "max_dirty_percent", round(100 * self._dirty_ratio_max))
        yield gauge(MANAGER + "time_since_last_run_ms", 0 if self._looked_ms is None else now_ms - self._looked_ms)
        yield self._by_directory("uncleanable_partitions_count", dict.fromkeys(self.uncleanable, 1))
        sizes = {p: p.log_if_open.size_bytes if p.log_if_open is not None else 0 for p in self.uncleanable}
        yield self._by_directory("uncleanable_bytes", sizes)
        yield counter("headrace_compactionrounds_total", self.rounds)
        yield counter("headrace_compactionbytesread_total", self.bytes_read)
        yield counter("headrace_compactionbyteswritten_total", self.bytes_written)
        yield Family(
            "headrace_compactionprogresspercent",
            "gauge",
            [
                Sample(
                    labelled(topic=partition.topic, partition=partition.index),
                    round(100 * running.bytes_read / running.bytes_total) if running.bytes_total else 100,
                )
                for partition, running in self._running.items()
            ],
        )

    def _by_directory(self, name: str, values: dict[Hosted, int]) -> Family:
        sums: dict[str, int] = {}
        for partition, value in values.items():
            path = partition.directory.path
            sums[path] = sums.get(path, 0) + value
        samples = [Sample(labelled(logDirectory=path), value) for path, value in sorted(sums.items())]
        return Family(MANAGER + name, "gauge", samples or [Sample("", 0)])
