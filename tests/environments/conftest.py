from __future__ import annotations

import pytest

from clawback import engine
from clawback.models.types import Sampling
from tests.engine.conftest import folders  # noqa: F401


@pytest.fixture
def policy():
    made = engine.load("embedded")
    made.sampling = Sampling(1.0)
    return made
