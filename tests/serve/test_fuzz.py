"""Requests that nobody would write: from our own OpenAPI description, and raw bytes. No 500, no crash, memory flat.

``CLAWBACK_FUZZ=2000 pytest -m slow tests/serve/test_fuzz.py`` for more of it (examples an operation; raw connections).
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from typing import Any, cast

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, Phase, settings

from clawback import paths
from clawback.paths import Home
from clawback.serve import app as serving
from clawback.serve import openapi_schema

from .conftest import Running

schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("CLAWBACK_FUZZ", "60"))
described = schemathesis.openapi.from_dict(
    openapi_schema.openapi(serving.api_routes(cast(Any, None)))
).exclude(
    path_regex=r"^/api/(train|hooks/.*|runs/.*/resume)$"  # they start processes
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    home = Home(tmp_path_factory.mktemp("fuzz"))
    home.create()
    home.config.write_text("[training]\nbackground = false\n")
    server = Running(serving.make(home))
    headers = {"authorization": f"Bearer {paths.secret(home.root / 'token')}"}
    for word in ("One?", "Two?", "Three?"):
        httpx.post(
            server.url + "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": word}], "max_tokens": 8},
        )
    yield server, headers
    server.close()


@described.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_whatever_fits_or_breaks_the_description_is_answered(
    case: Any, target: tuple[Running, dict[str, str]]
) -> None:
    server, headers = target
    answer = case.call(base_url=server.url, headers={**(case.headers or {}), **headers}, timeout=300)
    assert answer.status_code < 500 or answer.status_code == 503, answer.text


def test_raw_bytes_crash_nothing_and_memory_stays(target: tuple[Running, dict[str, str]]) -> None:
    server, headers = target
    rng = random.Random(0)
    good = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

    def knock() -> None:
        data = bytearray(good)
        for _ in range(rng.randint(1, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = bytearray(rng.randbytes(rng.randint(1, 400)))
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            answer = raw.recv(200)
        assert b" 500 " not in answer.split(b"\r\n")[0]

    for _ in range(200):
        knock()
    before = psutil.Process().memory_info().rss
    for _ in range(20 * EXAMPLES):
        knock()
    assert psutil.Process().memory_info().rss - before < 50 * 2**20
    assert httpx.get(server.url + "/api/status", headers=headers).status_code == 200
