"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44).

Kafka names the structs of the two alterations alike; here those of 44 say so.
"""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bool, Int8, Int16, Int32, String, field


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None = None


class DescribeConfigsRequest(Message, api=32, versions=(1, 4), flexible=4):
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = field(default=False, since=3)


class DescribeConfigsSynonym(Struct):
    name: String
    value: String | None
    source: Int8


class DescribeConfigsResourceResult(Struct):
    name: String
    value: String | None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: Int8 = field(default=0, since=3)
    documentation: String | None = field(default=None, since=3)


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


class DescribeConfigsResponse(Message, api=32, versions=(1, 4), flexible=4):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


class AlterableConfig(Struct):
    name: String
    value: String | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


class AlterConfigsRequest(Message, api=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource]
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8
    resource_name: String


class AlterConfigsResponse(Message, api=33, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]


class IncrementalAlterableConfig(Struct):
    name: String
    config_operation: Int8
    value: String | None


class IncrementalAlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[IncrementalAlterableConfig]


class IncrementalAlterConfigsRequest(Message, api=44, versions=(0, 1), flexible=1):
    resources: list[IncrementalAlterConfigsResource]
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(Message, api=44, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
