"""Adapters of different people in one batch: each row says what its own adapter alone would say, whoever else is served."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks._people_adapters import write_adapters
from clawback import engine
from clawback.errors import ModelError
from clawback.extensions.people.shared_rows import SharedRows, SharedShelf
from clawback.extensions.people.shelf import pack, places_of
from clawback.inference import batcher as batcher_module
from clawback.inference.batcher import Batcher
from clawback.models import adapter as adapters
from clawback.models.types import Sampling
from clawback.sampling.choose import SamplingRequest
from clawback.sampling.scheduler import Lean

PEOPLE = 12
GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def policy() -> Any:
    return engine.load("embedded")


@pytest.fixture(scope="module")
def folders(policy: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("people")
    small = write_adapters(policy, root / "small", PEOPLE // 2, rank=4)
    return small + write_adapters(policy, root / "large", PEOPLE // 2, rank=8)


def shelf_of(policy: Any, **limits: int) -> SharedShelf:
    return SharedShelf(policy.model, policy.info, torch.float32, **limits)


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(300) for _ in range(rng.randint(1, 20))] for _ in range(count)]


@torch.no_grad()
def test_each_row_of_a_step_is_its_own_adapters(policy: Any, folders: list[Path]) -> None:
    asked, chosen = prompts(PEOPLE + 2), [None, *folders, folders[3]]
    shelf = shelf_of(policy, slots=PEOPLE)
    rows = SharedRows(policy.model, shelf, 16)
    requests = [
        SamplingRequest(prompt, 1, slot=shelf.hold(folder) or 0)
        for prompt, folder in zip(asked, chosen, strict=True)
    ]
    got = [rows.read(requests), rows.step([7] * len(asked))]
    kept = [1, 5, 0, 13]
    rows.keep(kept)
    after = rows.step([9] * len(kept))
    for place, (prompt, folder) in enumerate(zip(asked, chosen, strict=True)):
        bare = policy.model
        if folder is not None:
            policy.model = adapters.put(bare, policy.info, folder, "one")
        try:
            alone = Lean(policy.model, 16)
            wanted = [alone.read([SamplingRequest(prompt, 1)])[0], alone.step([7])[0], alone.step([9])[0]]
        finally:
            if folder is not None:
                policy.model = adapters.remove(policy.model, "one")
        apart = [
            (a[place].log_softmax(-1) - b.log_softmax(-1)).abs().max()
            for a, b in zip(got, wanted, strict=False)
        ]
        if place in kept:
            apart.append((after[kept.index(place)].log_softmax(-1) - wanted[2].log_softmax(-1)).abs().max())
        assert max(apart) < 1e-3, place
    different = got[1].log_softmax(-1)
    assert (different[1] - different[2]).abs().max() > 0.1, "the adapters of this test say the same"


class Said:
    """Asks, and waits for the answer."""

    def __init__(self, batcher: Batcher, prompt: list[int], folder: Path | None, tokens: int = 6) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.ended, self.why = threading.Event(), ""
        batcher.submit(SamplingRequest(prompt, tokens, self._token, self._end, folder, GREEDY))

    def _token(self, token: int, logprob: float) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)

    def _end(self, why: str) -> None:
        self.why = why
        self.ended.set()

    def wait(self) -> tuple[int, ...]:
        assert self.ended.wait(120)
        assert not self.why.startswith("error"), self.why
        return tuple(self.ids)


@pytest.mark.slow
def test_nobody_is_answered_by_anothers_adapter(policy: Any, folders: list[Path]) -> None:
    """With three slots for twelve adapters, so that they are put in and out all the time while others are answered."""
    asked = prompts(4)
    rng = random.Random(2)
    wanted = [(rng.randrange(4), rng.choice([None, *folders])) for _ in range(150)]
    alone = Batcher(policy, [], shelf_of(policy, slots=1))
    alone.start()
    expected = {which: Said(alone, asked[which[0]], which[1]).wait() for which in set(wanted)}
    alone.close()
    assert len({expected[0, folder] for folder in folders if (0, folder) in expected}) > 5

    shelf = shelf_of(policy, slots=3)
    batcher = Batcher(policy, [], shelf)
    batcher.start()
    for start in range(0, len(wanted), 15):
        some = wanted[start : start + 15]
        answers = [Said(batcher, asked[which], folder) for which, folder in some]
        assert [said.wait() for said in answers] == [expected[one] for one in some]
    batcher.close()
    assert shelf.counts["device"] > PEOPLE
    assert sum(shelf._pins.values()) == 0


def test_one_who_waits_for_a_slot_is_not_passed_by_for_ever(
    policy: Any, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher_module, "PATIENCE", 5)
    monkeypatch.setattr(batcher_module, "MOST_ROWS", 2)
    batcher = Batcher(policy, [], shelf_of(policy, slots=1))
    busy = [Said(batcher, [1, 2], folders[0], 4)]
    waits = Said(batcher, [1, 2], folders[1], 1)
    busy += [Said(batcher, [1, 2], folders[0], 4 + number % 3) for number in range(30)]
    batcher.start()
    assert waits.wait()
    before = sum(one.ended.is_set() for one in busy)
    for one in busy:
        one.wait()
    batcher.close()
    assert before < 20


def test_a_damaged_adapter_ends_its_own_request_alone(
    policy: Any, folders: list[Path], tmp_path: Path
) -> None:
    batcher = Batcher(policy, [], shelf_of(policy, slots=2))
    batcher.start()
    bad, good = Said(batcher, [1, 2], tmp_path / "gone"), Said(batcher, [1, 2], folders[0])
    assert good.wait()
    assert bad.ended.wait(60)
    assert bad.why.startswith("error: There is no adapter")
    assert Said(batcher, [1, 2], folders[1]).wait()
    batcher.close()


def test_memory_holds_what_was_used_last(policy: Any, folders: list[Path]) -> None:
    size = shelf_of(policy).warm(folders[-1]).size
    shelf = shelf_of(policy, slots=1, memory=3 * size)
    for folder in [*folders[-3:], folders[-1], folders[-3]]:
        shelf.warm(folder)
    assert shelf.counts["disk"] == 3
    shelf.warm(folders[0])
    shelf.warm(folders[1])
    shelf.warm(folders[2])
    assert shelf._size <= shelf.memory
    shelf.warm(folders[-2])
    assert shelf.counts["disk"] == 7


def test_a_slot_in_use_is_not_given_away(policy: Any, folders: list[Path]) -> None:
    shelf = shelf_of(policy, slots=2)
    first, second = shelf.hold(folders[0]), shelf.hold(folders[1])
    assert shelf.hold(folders[2]) is None
    assert shelf.hold(folders[0]) == first
    shelf.release(first or 0)
    assert shelf.hold(folders[2]) is None, "it was held twice"
    shelf.release(second or 0)
    assert shelf.hold(folders[2]) == second
    assert shelf.hold(None) == 0


def test_an_adapter_that_was_written_anew_is_another(
    policy: Any, folders: list[Path], tmp_path: Path
) -> None:
    import shutil

    mine = tmp_path / "mine"
    shutil.copytree(folders[0], mine)
    shelf = shelf_of(policy, slots=2)
    before = shelf.warm(mine)
    shutil.rmtree(mine)
    shutil.copytree(folders[1], mine)
    assert not torch.equal(before.pairs[0][0], shelf.warm(mine).pairs[0][0])


def test_what_does_not_fit_is_refused(policy: Any, folders: list[Path], tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    odd = tmp_path / "odd"
    shutil.copytree(folders[0], odd)
    tensors = load_file(odd / adapters.WEIGHTS)
    save_file(
        {**tensors, "base_model.model.lm_head.lora_A.weight": torch.zeros(4, 4)}, odd / adapters.WEIGHTS
    )
    with pytest.raises(ModelError, match="lm_head"):
        pack(odd, policy.info, places_of(policy.model))
    name = next(iter(tensors))
    save_file({**tensors, name: torch.zeros(3, 3)}, odd / adapters.WEIGHTS)
    with pytest.raises(ModelError, match="does not fit"):
        pack(odd, policy.info, places_of(policy.model))


@pytest.mark.slow
def test_a_thousand_requests_of_a_hundred_people(policy: Any, tmp_path: Path) -> None:
    from argparse import Namespace

    from benchmarks.many_adapters import leaks

    found = leaks(policy, write_adapters(policy, tmp_path, 100), Namespace(leaks=1000))
    assert found["requests"] == 1000
    assert found["not what it says alone"] == 0
    assert found["different answers of different people"] > 90
    assert found["adapters put into slots"] > 100
