"""One server for all tests of a run; `make test-postgres` chooses others by AGENTMEMORY_TEST_POSTGRES."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from postgres_servers import MISSING, Server, programs, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    version = os.environ.get("AGENTMEMORY_TEST_POSTGRES", "wheel")
    if programs(version) is None:
        pytest.fail(f"{MISSING} (wanted: {version})")
    with running_server(version) as started:
        yield started


@pytest.fixture
def url(server: Server) -> str:
    """Return the URL of a new, empty schema."""
    return server.url(f"t_{uuid4().hex}")
