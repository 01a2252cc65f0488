"""Names of objects can be told from each other, sort as numbers do, and are names that every store takes."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.tier.layout import (
    ManifestName,
    ObjectName,
    SegmentName,
    cluster_prefix,
    manifest_key,
    new_id,
    parse_key,
    partition_prefix,
    segment_key,
)
from headrace.tier.store import check_key, check_prefix

clusters = st.text(min_size=1, max_size=30)
topic_ids = st.binary(min_size=16, max_size=16)
ids = st.integers(0, 2**128 - 1).map(new_id)
segments = st.builds(SegmentName, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), ids)
manifests = st.builds(ManifestName, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), ids)


@given(clusters, topic_ids, st.integers(0, 100_000), segments, manifests)
def test_names_are_read_back(
    cluster: str, topic_id: bytes, partition: int, segment: SegmentName, manifest: ManifestName
) -> None:
    named: list[tuple[str, SegmentName | ManifestName]] = [
        (segment_key(cluster, topic_id, partition, segment), segment),
        (manifest_key(cluster, topic_id, partition, manifest), manifest),
    ]
    for key, name in named:
        check_key(key)
        assert key.startswith(partition_prefix(cluster, topic_id, partition))
        assert parse_key(key) == ObjectName(topic_id, partition, name)


@given(clusters, clusters)
def test_two_clusters_never_share_a_prefix(one: str, two: str) -> None:
    check_prefix(cluster_prefix(one))
    assert (cluster_prefix(one) == cluster_prefix(two)) == (one == two)


@given(manifests, manifests)
def test_manifests_sort_by_epoch_and_number(one: ManifestName, two: ManifestName) -> None:
    keys = sorted([manifest_key("c", bytes(16), 0, one), manifest_key("c", bytes(16), 0, two)])
    assert [found.object for key in keys if (found := parse_key(key))] == sorted([one, two])


def test_other_objects_are_none_of_ours() -> None:
    for key in ("c/a", "headrace-probe/00", f"c/{'0' * 32}/0/x.segment", f"c/{'0' * 32}/x/manifest-1"):
        assert parse_key(key) is None
