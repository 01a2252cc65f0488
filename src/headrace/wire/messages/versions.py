"""ApiVersions (18).

A broker that lacks the asked version answers in version 0, with error 35 and the range it has: whoever reads
the answer tries version 0 when the first two bytes are that error.
"""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import NEWEST, Bool, Int16, Int32, Int64, String, field, tagged


class ApiVersionsRequest(Message, api=18, versions=(0, 4), flexible=3):
    client_software_name: String = field(default="", since=3)
    client_software_version: String = field(default="", since=3)


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Message, api=18, versions=(0, 4), flexible=3, flexible_header=NEWEST):
    """Clients read it before they know which versions the broker speaks, so its header never changed."""

    error_code: Int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(default=0, since=1)
    supported_features: list[SupportedFeatureKey] = tagged(0, default_factory=list, since=3)
    finalized_features_epoch: Int64 = tagged(1, default=-1, since=3)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, default_factory=list, since=3)
    zk_migration_ready: Bool = tagged(3, default=False, since=3)
