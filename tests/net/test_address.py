import pytest

from headrace.net.transport import Address


@pytest.mark.parametrize(
    ("address", "text"), [(Address("127.0.0.1", 9092), "127.0.0.1:9092"), (Address("::1", 9092), "[::1]:9092")]
)
def test_an_address_is_written_as_it_is_read(address: Address, text: str) -> None:
    assert str(address) == text
