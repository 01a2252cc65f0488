import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from headrace.core.murmur2 import murmur2, partition_for

# From Utils.murmur2 of Apache Kafka 4.3.1, where ints have a sign.
FROM_KAFKA = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"abcd": -1323649548,
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"\xff\x80\x01\xfe\x99\xff\x81": 1847125741,
}


@pytest.mark.parametrize("key", FROM_KAFKA)
def test_keys_hash_as_in_apache_kafka(key: bytes) -> None:
    assert murmur2(key) == FROM_KAFKA[key] % (1 << 32)


@given(st.binary(max_size=100))
def test_keys_hash_as_in_another_client(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) % (1 << 32)


def test_a_negative_hash_loses_its_sign_bit_and_nothing_else() -> None:
    assert partition_for(b"foobar", 1000) == (-790332482 & 0x7FFFFFFF) % 1000
    assert partition_for(b"foobar", 1) == 0
