"""Client libraries of others against a server with the embedded model, streamed and not: the text is right, and recorded once.

They are installed in an environment of their own, which ``CLAWBACK_LIBRARIES`` names (its Python); what is not in it is skipped::

    python3 -m venv libs && libs/bin/pip install openai anthropic litellm langchain-openai langchain-anthropic \\
        'pydantic-ai-slim[openai]' openai-agents instructor llm llama-index-llms-openai-like
    CLAWBACK_LIBRARIES=libs/bin/python pytest -m slow tests/serve/test_libraries.py
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running
from .library_calls import LIBRARIES, QUESTION

pytestmark = pytest.mark.slow


@pytest.fixture
def server(home: Home, running: Callable[[Any], Running]) -> Running:
    return running(serving.make(home))


PYTHON = os.environ.get("CLAWBACK_LIBRARIES", "")


@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_gets_the_answer_and_it_is_recorded_once(
    server: Running, home: Home, library: str, how: str
) -> None:
    if not PYTHON:
        pytest.skip("CLAWBACK_LIBRARIES names no Python with client libraries")
    module = LIBRARIES[library][0]
    if subprocess.run(
        [PYTHON, "-c", f"import importlib.util as u; assert u.find_spec({module!r})"], capture_output=True
    ).returncode:
        pytest.skip(f"{library} is not installed there")
    command = [PYTHON, str(Path(__file__).with_name("library_calls.py")), library, server.url, how]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(home.root)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with store.connect(home.database) as db:
        [turn] = db.turns()
    assert turn.kind == "main"
    assert turn.prompt == QUESTION
    assert done.stdout.strip() == turn.response.strip() != ""
