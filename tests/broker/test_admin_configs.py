"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, as clients of each version see them."""

import pytest

from headrace.controller.topics import NewTopic
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tests.broker.admin_bench import AdminBench

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE = 0, 1


@pytest.fixture
async def bench() -> AdminBench:
    bench = await AdminBench().start({"log.segment.bytes": "5000"})
    await bench.broker.controller.create_topics([NewTopic("t", settings={"retention.ms": "77"})])
    return bench


async def describe(
    bench: AdminBench, kind: int, name: str, *keys: str, version: int = 4, everything: bool = True
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=everything, include_documentation=everything and version >= 3
    )
    (result,) = (await bench.ask(request, version, DescribeConfigsResponse)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


async def replace(bench: AdminBench, kind: int, name: str, version: int = 2, **settings: str | None) -> tuple[int, str]:
    configs = [AlterableConfig(name=key.replace("_", "."), value=text) for key, text in settings.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = await bench.ask(AlterConfigsRequest(resources=[resource]), version, AlterConfigsResponse)
    (response,) = answer.responses
    return response.error_code, response.error_message or ""


async def edit(
    bench: AdminBench,
    kind: int,
    name: str,
    *edits: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str]:
    configs = [IncrementalAlterableConfig(name=key, config_operation=op, value=text) for key, op, text in edits]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (response,) = (await bench.ask(request, version, IncrementalAlterConfigsResponse)).responses
    return response.error_code, response.error_message or ""


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_tells_a_topics_settings_with_their_sources(bench: AdminBench, version: int) -> None:
    configs = by_name(await describe(bench, TOPIC, "t", version=version))
    retention, segment = configs["retention.ms"], configs["segment.bytes"]
    assert (retention.value, retention.config_source, retention.read_only) == ("77", 1, False)
    assert (segment.value, segment.config_source) == ("5000", 4)
    assert [(s.name, s.value, s.source) for s in segment.synonyms] == [
        ("log.segment.bytes", "5000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    if version >= 3:
        assert (retention.config_type, segment.config_type, configs["cleanup.policy"].config_type) == (5, 3, 7)
        assert retention.documentation == "How long records are kept; -1 is for ever."


async def test_synonyms_and_texts_are_told_when_asked_for(bench: AdminBench) -> None:
    for config in (await describe(bench, TOPIC, "t", everything=False)).configs:
        assert config.synonyms == []
        assert config.documentation is None


async def test_single_settings_can_be_asked_for(bench: AdminBench) -> None:
    assert list(by_name(await describe(bench, TOPIC, "t", "retention.ms", "no.such"))) == ["retention.ms"]


async def test_a_broker_tells_its_own_settings_and_those_of_all(bench: AdminBench) -> None:
    configs = by_name(await describe(bench, BROKER, "1"))
    assert configs["num.partitions"].read_only
    assert not configs["log.segment.bytes"].read_only
    assert configs["log.segment.bytes"].config_source == 4
    assert by_name(await describe(bench, BROKER, "")) == {}
    assert await edit(bench, BROKER, "", ("log.segment.bytes", SET, "6000")) == (0, "")
    assert by_name(await describe(bench, BROKER, ""))["log.segment.bytes"].value == "6000"
    assert by_name(await describe(bench, BROKER, "1"))["log.segment.bytes"].config_source == 3
    assert by_name(await describe(bench, TOPIC, "t"))["segment.bytes"].value == "6000"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_described_gets_its_code(bench: AdminBench, kind: int, name: str, code: ErrorCode) -> None:
    result = await describe(bench, kind, name)
    assert result.error_code == code
    assert result.error_message
    assert result.configs == []


async def test_seeing_settings_needs_its_right(bench: AdminBench) -> None:
    bench.deny(Operation.DESCRIBE_CONFIGS, "t")
    bench.deny(Operation.DESCRIBE_CONFIGS, "kafka-cluster")
    assert (await describe(bench, TOPIC, "t")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await describe(bench, BROKER, "1")).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(3))
async def test_replacing_settings_drops_those_not_named(bench: AdminBench, version: int) -> None:
    assert await replace(bench, TOPIC, "t", version=version, flush_ms="5") == (0, "")
    config = bench.broker.image.topics["t"].config
    assert (config.flush_ms, config.retention_ms) == (5, 604_800_000)


@pytest.mark.parametrize("version", range(2))
async def test_edits_leave_other_settings_alone(bench: AdminBench, version: int) -> None:
    assert await edit(bench, TOPIC, "t", ("flush.ms", SET, "5"), version=version) == (0, "")
    assert bench.broker.image.topics["t"].overrides == {"retention.ms": "77", "flush.ms": "5"}
    assert await edit(bench, TOPIC, "t", ("retention.ms", DELETE, None), version=version) == (0, "")
    assert bench.broker.image.topics["t"].overrides == {"flush.ms": "5"}


async def test_edits_can_be_validated_alone(bench: AdminBench) -> None:
    assert await edit(bench, TOPIC, "t", ("flush.ms", SET, "5"), validate_only=True) == (0, "")
    assert bench.broker.image.topics["t"].overrides == {"retention.ms": "77"}
    code, _ = await edit(bench, TOPIC, "t", ("flush.ms", SET, "x"), validate_only=True)
    assert code == ErrorCode.INVALID_CONFIG


async def test_a_node_takes_its_own_dynamic_settings_at_once(bench: AdminBench) -> None:
    assert await replace(bench, BROKER, "1", max_connections="9") == (0, "")
    assert bench.broker.config.max_connections == 9
    assert await replace(bench, BROKER, "1") == (0, "")
    assert bench.broker.config.max_connections == 10_000


async def test_what_is_fixed_at_start_is_refused_with_its_name(bench: AdminBench) -> None:
    code, sentence = await edit(bench, BROKER, "1", ("num.partitions", SET, "9"))
    assert code == ErrorCode.INVALID_REQUEST
    assert sentence == "Cannot change while the node runs, only at its start: num.partitions"


@pytest.mark.parametrize(
    ("kind", "name", "setting", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "none", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ("max.connections", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", ("max.connections", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "٣", ("max.connections", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_bad_edit_gets_its_code_and_a_sentence(
    bench: AdminBench, kind: int, name: str, setting: tuple[str, int, str | None], code: ErrorCode
) -> None:
    answered, sentence = await edit(bench, kind, name, setting)
    assert answered == code
    assert sentence


async def test_changing_settings_needs_its_right(bench: AdminBench) -> None:
    bench.deny(Operation.ALTER_CONFIGS, "t")
    bench.deny(Operation.ALTER_CONFIGS, "kafka-cluster")
    assert (await edit(bench, TOPIC, "t", ("flush.ms", SET, "5")))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await replace(bench, BROKER, "1", max_connections="9"))[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("name", ["99999999999", "9" * 5_000, "-1", "1 ", "\u0663", "one"])
async def test_a_broker_that_nobody_can_be_is_refused(bench: AdminBench, name: str) -> None:
    assert (await edit(bench, BROKER, name, ("max.connections", SET, "5")))[0] == ErrorCode.INVALID_REQUEST


async def test_a_resource_described_many_times_is_told_once(bench: AdminBench) -> None:
    resources = [DescribeConfigsResource(resource_type=BROKER, resource_name="1")] * 500
    answer = await bench.ask(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
    assert [(result.resource_name, result.error_code) for result in answer.results] == [("1", 0)]


async def test_a_resource_named_twice_is_refused_and_the_others_are_changed(bench: AdminBench) -> None:
    await bench.broker.controller.create_topics([NewTopic("u")])
    setting = [IncrementalAlterableConfig(name="flush.ms", config_operation=SET, value="5")]
    resources = [
        IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=setting)
        for name in ("t", "u", "t")
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    responses = (await bench.ask(request, 1, IncrementalAlterConfigsResponse)).responses
    assert [response.error_code for response in responses] == [
        ErrorCode.INVALID_REQUEST,
        0,
        ErrorCode.INVALID_REQUEST,
    ]
    assert bench.broker.image.topics["u"].config.flush_ms == 5
