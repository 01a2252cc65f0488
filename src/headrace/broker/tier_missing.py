"""A node without a tier, in a cluster that has tiered topics: it does not start, since it could give its clients only a
part of what there is.
"""

import logging
from collections.abc import Callable, Iterable

from headrace.core.cluster import ClusterImage, Diff, Topic

log = logging.getLogger(__name__)

NAMES_MAX = 3


def refusal(image: ClusterImage) -> str | None:
    """Why such a node does not start, as one sentence. Also for what is yet to be deleted from the tier."""
    left = {topic_id for topic_id, _ in image.tier}
    tiered = sorted(t.name for t in image.topics.values() if t.config.remote_storage_enable or t.id in left)
    if not tiered:
        return None
    return (
        f"Node {image.node_id} cannot start without a tier, since this cluster has tiered topics ({_listed(tiered)}): "
        "set remote.log.storage.system.enable=true and remote.storage.url as on the other nodes (headrace up --tier). "
        "To give up the tier, first set remote.storage.enable=false and remote.log.delete.on.disable=true on each of "
        "these topics, and wait until its objects are deleted"
    )


def watch(image: ClusterImage) -> Callable[[Diff], None]:
    """Other nodes have a tier: what becomes tiered while this one runs is told to whoever runs it, once for each."""
    told: set[bytes] = set()

    def look(diff: Diff) -> None:
        for topic in _fresh(diff, told):
            told.add(topic.id)
            log.error(
                "topic %s is tiered, and this node has no tier: it copies nothing of what it leads, cannot follow a "
                "leader that keeps the beginning in the tier, and will not start again without "
                "remote.log.storage.system.enable=true",
                topic.name,
            )
        told.intersection_update(image.topics_by_id)

    return look


def _fresh(diff: Diff, told: set[bytes]) -> Iterable[Topic]:
    changed = [*diff.topics_created, *diff.topics_configured]
    return [topic for topic in changed if topic.config.remote_storage_enable and topic.id not in told]


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
