"""What tests of administrative handlers share."""

import pytest

from tests.broker.admin_bench import AdminBench


@pytest.fixture
async def bench() -> AdminBench:
    return await AdminBench().start()
