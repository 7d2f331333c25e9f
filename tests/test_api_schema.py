"""Requests that schemathesis makes of our own OpenAPI document: every answer is one that it tells of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from regard.server.app import app_of
from regard.server.service import Service
from served import Served, served

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_dict(app_of(Service({})).openapi())
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as own:
        own.service.log.texts = False
        yield own


@pytest.mark.filterwarnings("ignore::regard.compat.OldNameWarning")
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_described(server: Served, name: str) -> None:
    @settings(
        max_examples=10,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[name].as_strategy())
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and case.path == "/v1/completions":
            case.body["max_tokens"] = 2
        case.call_and_validate(base_url=server.address, checks=CHECKS)

    ask()
