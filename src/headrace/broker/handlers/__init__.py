"""A file per API. This table says which one serves which key; versions are told by wire.apis alone."""

from collections.abc import Callable
from typing import Any

from headrace.broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k56_alter_partition,
    k60_describe_cluster,
    k65_describe_transactions,
    k66_list_transactions,
    k75_describe_topic_partitions,
    k18202_step_down,
    k18203_inspect,
)

DECIDED: dict[int, Callable[..., Any]] = {
    19: k19_create_topics.refuse_all,
    20: k20_delete_topics.refuse_all,
    33: k33_alter_configs.refuse_all,
    37: k37_create_partitions.refuse_all,
    43: k43_elect_leaders.refuse_all,
    44: k44_incremental_alter_configs.refuse_all,
}
"""What the controller decides on, wherever it was asked, and how each is refused."""

HANDLERS: dict[int, Callable[..., Any]] = {
    0: k00_produce.handle,
    1: k01_fetch.handle,
    2: k02_list_offsets.handle,
    3: k03_metadata.handle,
    10: k10_find_coordinator.handle,
    18: k18_api_versions.handle,
    19: k19_create_topics.handle,
    20: k20_delete_topics.handle,
    21: k21_delete_records.handle,
    22: k22_init_producer_id.handle,
    23: k23_offset_for_leader_epoch.handle,
    24: k24_add_partitions_to_txn.handle,
    25: k25_add_offsets_to_txn.handle,
    26: k26_end_txn.handle,
    32: k32_describe_configs.handle,
    33: k33_alter_configs.handle,
    35: k35_describe_log_dirs.handle,
    37: k37_create_partitions.handle,
    43: k43_elect_leaders.handle,
    44: k44_incremental_alter_configs.handle,
    56: k56_alter_partition.handle,
    60: k60_describe_cluster.handle,
    65: k65_describe_transactions.handle,
    66: k66_list_transactions.handle,
    75: k75_describe_topic_partitions.handle,
    18202: k18202_step_down.handle,
    18203: k18203_inspect.handle,
}
