import pytest

from clawback.engine import memory
from clawback.engine.types import ModelInfo
from clawback.errors import TrainingError

EIGHT_B = ModelInfo("m", "r", "A", 8_000_000_000, 8_000_000_000, 4096, 32, 128_000, 14_336, 8192)
GB = 10**9


@pytest.mark.parametrize(
    ("free", "expected"),
    [(80, (False, False)), (30, (False, True)), (12, (True, True))],
)
def test_the_fastest_way_that_fits(free, expected):
    choice = memory.decide(EIGHT_B, free=free * GB, rank=16)
    assert (choice.load_in_4bit, choice.gradient_checkpointing) == expected
    assert choice.bytes <= free * GB


def test_4_bit_can_be_asked_for_and_refused():
    assert memory.decide(EIGHT_B, free=80 * GB, rank=16, allow_4bit=True).load_in_4bit
    with pytest.raises(TrainingError, match=r"needs about .* GB .* 12\.0 GB is free"):
        memory.decide(EIGHT_B, free=12 * GB, rank=16, allow_4bit=False)


def test_more_memory_is_never_used_worse():
    seen = []
    for free in range(8, 90, 2):
        try:
            choice = memory.decide(EIGHT_B, free=free * GB, rank=16)
        except TrainingError:
            continue
        seen.append((not choice.load_in_4bit, not choice.gradient_checkpointing, choice.micro_tokens))
    assert seen == sorted(seen)


def test_need_grows_with_everything():
    small = memory.need(EIGHT_B, bits=4, rank=8, micro_tokens=512, checkpointing=True)
    for change in ({"bits": 16}, {"rank": 16}, {"micro_tokens": 1024}, {"checkpointing": False}):
        settings = {"bits": 4, "rank": 8, "micro_tokens": 512, "checkpointing": True, **change}
        assert memory.need(EIGHT_B, **settings) > small
