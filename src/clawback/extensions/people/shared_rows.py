"""Rows of different adapters in one step: the base model's product for all of them, plus each row's own low-rank part.

    y_i = W x_i + B_i (A_i x_i)        two batched products over the rows, where one adapter for all would take two plain ones

The factors of the active rows are gathered from the shelf's tables when rows come or go, not at every step.
The base weights are read once for all rows, and reading them is most of the cost of a step of few rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clawback.extensions.people.shelf import Shelf
from clawback.models import wide
from clawback.sampling import READ_TOKENS, Cache, Lean, drawing_dtype, lean

if TYPE_CHECKING:
    from clawback.sampling import ChatModel, SamplingRequest


class _Chosen:
    """Whose adapter the rows of the present product have."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.slots: tuple[int, ...] = ()
        self.version = 0
        self.factors: dict[int, tuple[Tensor, Tensor]] = {}

    def choose(self, slots: Sequence[int]) -> None:
        now = self.shelf.counts["device"]  # a slot may hold another adapter than before
        if tuple(slots) != self.slots or now != self.version:
            self.slots, self.version, self.factors = tuple(slots), now, {}

    def of(self, table: int) -> tuple[Tensor, Tensor]:
        """``A [rows, R, in]`` and ``B [rows, out, R]``; of one adapter alone without rows."""
        if table not in self.factors:
            a, b = self.shelf.tables[table]
            if len(set(self.slots)) == 1:
                self.factors[table] = a[self.slots[0]], b[self.slots[0]]
            else:
                rows = torch.tensor(self.slots, device=a.device)
                self.factors[table] = a[rows], b[rows]
        return self.factors[table]


@dataclass(frozen=True, slots=True)
class _Adapted:
    """A product of the decoder with each row's own part."""

    product: Any
    table: int
    chosen: _Chosen

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, in] or [rows, time, in]."""
        y: Tensor = self.product(x)
        if not any(self.chosen.slots):
            return y
        a, b = self.chosen.of(self.table)
        if a.ndim == 2:
            return y + (x @ a.T) @ b.T
        wide = x if x.ndim == 3 else x[:, None]
        more = torch.bmm(torch.bmm(wide, a.transpose(1, 2)), b.transpose(1, 2))
        return y + more.view_as(y)


class SharedRows(Lean):
    """The rows of everybody, each with its request's slot on the shelf.

    Nothing is kept for later prompts: an adapter's slot may be another's when the next turn comes, and how soon an answer begins would tell
    people what others have asked.
    """

    def __init__(self, model: object, shelf: Shelf, expected: int) -> None:
        super().__init__(model, expected, memory=False)
        self.shelf, self.chosen = shelf, _Chosen(shelf)
        self.slots: list[int] = []
        places = iter(range(len(shelf.places)))

        def adapted(product: object) -> Any:
            return _Adapted(product, next(places), self.chosen)

        self.decoder.blocks = [
            replace(
                block,
                qkv=adapted(block.qkv),
                out=adapted(block.out),
                gate_up=adapted(block.gate_up),
                down=adapted(block.down),
            )
            for block in self.decoder.blocks
        ]

    def read(self, requests: Sequence[SamplingRequest]) -> Tensor:
        try:
            logits = super().read(requests)
        except BaseException:
            for request in requests:
                self.shelf.release(request.slot)
            raise
        self.slots += [request.slot for request in requests]
        return logits

    def batches(self, requests: Sequence[SamplingRequest]) -> Iterator[list[SamplingRequest]]:
        """Padded: tokens of different adapters are different tokens."""
        some: list[SamplingRequest] = []
        for request in requests:
            if some and (len(some) + 1) * max(len(one.prompt) for one in (*some, request)) > READ_TOKENS:
                yield some
                some = []
            some.append(request)
        yield some

    def read_batch(self, cache: Cache, requests: Sequence[SamplingRequest]) -> Tensor:
        first, prompts = len(self.ids), [request.prompt for request in requests]
        self.chosen.choose([request.slot for request in requests])
        slots = torch.arange(first, first + len(requests), device=self.decoder.device)
        return self.decoder.read(prompts, cache, slots, wide(max(map(len, prompts))))

    def adapt(self, spare: int) -> None:
        self.chosen.choose([*self.slots, *[0] * spare])

    def keep(self, places: Sequence[int]) -> None:
        staying = set(places)
        for place, slot in enumerate(self.slots):
            if place not in staying:
                self.shelf.release(slot)
        self.slots = [self.slots[old] for old in places]
        super().keep(places)

    def drop(self) -> None:
        for slot in self.slots:
            self.shelf.release(slot)
        self.slots = []
        super().drop()


class SharedShelf(Shelf):
    """A shelf whose adapters answer in one batch: for ``inference.batcher.Batcher``."""

    def rows(self, model: object, expected: int) -> SharedRows:
        """Rows for everybody. ``expected``: how many weights are put in order for."""
        return SharedRows(model, self, expected)


def shelf_of(policy: ChatModel, slots: int, memory: int) -> SharedShelf | None:
    """None where the model's own forward has to answer: then a step is made for each adapter.

    Args:
        slots: adapters in one step.
        memory: bytes for those that are kept.
    """
    if not lean(policy):
        return None
    dtype = drawing_dtype(policy.model)
    return SharedShelf(policy.model, policy.info, dtype, slots=slots, memory=memory)
