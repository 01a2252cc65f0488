"""The messages of etcd's API, beside bytes that protobuf's own encoder made of them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata import etcd_messages as messages
from headrace.metadata.store import Cmp, Put


def test_requests_are_what_protobuf_makes_of_them() -> None:
    assert messages.range_request(b"/a", b"/b", 5000, 7) == b"\x0a\x02/a\x12\x02/b\x18\x88\x27\x20\x07"
    assert messages.txn_request([Cmp(b"k", 0), Cmp(b"k", 300, "create")], [Put(b"k", b"v", 5)], [b"d"]) == (
        b"\x0a\x07\x10\x02\x1a\x01k\x30\x00"
        b"\x0a\x08\x10\x01\x1a\x01k\x28\xac\x02"
        b"\x12\x0a\x12\x08\x0a\x01k\x12\x01v\x18\x05"
        b"\x12\x05\x1a\x03\x0a\x01d"
    )
    assert messages.watch_request(b"", 3) == b"\x0a\x08\x0a\x01\x00\x12\x01\x00\x18\x03"


def test_answers_are_read_and_unknown_fields_skipped() -> None:
    header = b"\x0a\x06\x08\xff\x01\x18\x90\x03"
    kv = b"\x0a\x01k\x10\x04\x18\x07\x20\x01\x2a\x01v"
    assert messages.read_range(header + b"\x12\x0c" + kv + b"\x18\x01\x20\x01") == (400, [(b"k", b"v", 4, 7)], True)
    assert messages.read_txn(header + b"\x10\x01\x1a\x00") == (True, 400)
    assert messages.read_txn(header) == (False, 400)
    assert messages.read_lease(header + b"\x10\x4d\x18\x09") == (77, 9)
    gone = b"\x18" + b"\xff" * 9 + b"\x01"
    assert messages.read_lease(header + gone) == (0, -1)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_read_or_refused(answer: bytes) -> None:
    for read in (messages.read_range, messages.read_txn, messages.read_watch, messages.read_lease):
        with contextlib.suppress(messages.BadMessage):
            read(answer)


@pytest.mark.parametrize("answer", [b"\x0a\x05abc", b"\x80", b"\x0b", b"\x12\x01\xff", b"\x08\x01"])
def test_damaged_answers_are_refused(answer: bytes) -> None:
    with pytest.raises(messages.BadMessage):
        messages.read_range(answer)
