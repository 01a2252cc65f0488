"""Which settings of a topic go together with a tier. Pure: nothing here writes."""

from headrace.config import INHERITED, BrokerConfig, TopicConfig

NO_LIMIT = -1


def tier_refusal(broker: BrokerConfig, before: TopicConfig | None, after: TopicConfig) -> str | None:
    """Why a topic cannot have these settings, as one sentence. `before` is what it has now, None for a new one."""
    if not after.remote_storage_enable:
        if before is not None and before.remote_storage_enable and not after.remote_log_delete_on_disable:
            return (
                "remote.storage.enable cannot become false while the tier has records of the topic: to delete them "
                "there, set remote.log.delete.on.disable=true too; to keep them and copy no more, set "
                "remote.log.copy.disable=true"
            )
        return None
    was_tiered = before is not None and before.remote_storage_enable
    if not broker.remote_log_storage_system_enable and not was_tiered:
        return "remote.storage.enable needs a tier, and remote.log.storage.system.enable is false on the brokers"
    if "compact" in after.cleanup_policy:
        return "A compacted topic cannot be tiered: remote.storage.enable needs cleanup.policy=delete"
    for name, local, whole in (
        ("ms", after.local_retention_ms, after.retention_ms),
        ("bytes", after.local_retention_bytes, after.retention_bytes),
    ):
        if local != INHERITED and whole != NO_LIMIT and (local == NO_LIMIT or local > whole):
            return f"local.retention.{name} ({local}) is above retention.{name} ({whole})"
    return None


def tier_warning(after: TopicConfig) -> str | None:
    """A threshold of elections that local retention keeps replicas from: then being at local retention counts."""
    if not after.remote_storage_enable:
        return None
    for name, threshold, kept in (
        ("ms", after.leader_election_eligible_local_log_ms, after.kept_locally_ms),
        ("bytes", after.leader_election_eligible_local_log_bytes, after.kept_locally_bytes),
    ):
        if threshold > 0 and kept != NO_LIMIT and threshold > kept:
            return (
                f"leader.election.eligible.local.log.{name} ({threshold}) is above what the brokers' disks keep "
                f"({kept}): replicas are passed over until local retention first deletes something of theirs"
            )
    return None
