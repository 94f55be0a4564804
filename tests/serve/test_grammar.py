"""Whatever the logits say, what is drawn under a JSON schema is a document of it; jsonschema is the judge."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import torch

from clawback import engine
from clawback.errors import UsageError
from clawback.inference import schema_grammar
from clawback.inference.batcher import Batcher
from clawback.inference.schema_grammar import Grammars
from clawback.models.types import Sampling
from clawback.policy.policy import Policy
from clawback.sampling.batched_sampler import stop_ids
from clawback.sampling.choose import SamplingRequest

pytest.importorskip("llguidance")

SHORT = {"type": "string", "maxLength": 12}
SCHEMAS: list[dict[str, Any]] = [
    {"enum": ["yes", "no", 3, None]},
    {"type": "integer", "minimum": -5, "maximum": 40},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "object", "properties": {"name": SHORT, "legs": {"type": "integer", "minimum": 0, "maximum": 8}}, "required": ["name", "legs"], "additionalProperties": False},
    {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"é": {"const": "ü"}}, "required": ["é"], "additionalProperties": False}]},
    {"$defs": {"leaf": {"enum": ["a", "b"]}}, "type": "array", "items": {"$ref": "#/$defs/leaf"}, "minItems": 1, "maxItems": 3},
]  # fmt: skip


@pytest.fixture(scope="module")
def embedded() -> Policy:
    return engine.load("embedded")


@pytest.fixture(scope="module")
def grammars(embedded: Policy) -> Grammars:
    return Grammars(
        embedded.tokenizer, embedded.info.vocabulary, stop_ids(embedded.model, embedded.chat.end_id)
    )


def drawn(grammars: Grammars, schema: dict[str, Any], seed: int) -> str:
    """A document by a model that has no idea of JSON."""
    chance, constraint = torch.Generator().manual_seed(seed), grammars.constraint(schema)
    ids: list[int] = []
    while len(ids) < 400:
        logits = constraint.allowed(torch.randn(grammars.vocabulary, generator=chance))
        token = int(logits.softmax(0).multinomial(1, generator=chance))
        constraint.take(token)
        assert not constraint.trouble
        if token in grammars.stop:
            return str(grammars.tokenizer.decode(ids))
        ids.append(token)
    raise AssertionError("it did not end")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_draw_is_a_document_of_the_schema(grammars: Grammars, schema: dict[str, Any]) -> None:
    for seed in range(4):
        jsonschema.validate(json.loads(drawn(grammars, schema, seed)), schema)


def test_the_rows_of_a_batch_keep_each_to_its_own(embedded: Policy, grammars: Grammars) -> None:
    """And a row without a schema says what it says alone, at the log-probs of the policy itself."""
    prompt = embedded.chat.prompt([{"role": "user", "content": "Tell me about the otter."}])

    def said(*schemas: dict[str, Any] | None) -> list[tuple[list[int], list[float]]]:
        batcher = Batcher(embedded, grammars.stop)
        told: list[tuple[list[int], list[float]]] = [([], []) for _ in schemas]
        ends: list[str] = []
        for (ids, logprobs), schema in zip(told, schemas, strict=True):
            batcher.waiting.append(
                SamplingRequest(
                    prompt,
                    60,
                    lambda token, value, ids=ids, logprobs=logprobs: (ids.append(token), logprobs.append(value))[0],  # type: ignore[misc]
                    ends.append,
                    sampling=Sampling(temperature=0.9),
                    seed=5,
                    constraint=None if schema is None else grammars.constraint(schema),
                )
            )  # fmt: skip
        with torch.no_grad():
            batcher._admit()
            while any(lane.running for lane in batcher.lanes.values()):
                for lane in batcher.lanes.values():
                    lane.step()
        assert set(ends) <= {"stop", "length"}
        return told

    plain, animal, numbers = said(None, SCHEMAS[3], SCHEMAS[2])
    assert plain[0] == said(None)[0][0]
    for (ids, logprobs), schema in ((animal, SCHEMAS[3]), (numbers, SCHEMAS[2])):
        made = json.loads(str(embedded.tokenizer.decode(ids, skip_special_tokens=True)))
        jsonschema.validate(made, schema)
        with torch.no_grad():
            logits = embedded.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        scored = (logits / 0.9).log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]
        assert logprobs == pytest.approx(scored.tolist(), abs=1e-3)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "animal"},
        {"$ref": "http://127.0.0.1:9/of-somebody-else.json"},
        {"enum": ["x" * schema_grammar.MOST_BYTES]},
        {"type": "object", "patternProperties": {"(": {}}},
        {"allOf": [{"anyOf": [{"type": "string", "pattern": f"{i}a*{j}"} for j in range(20)]} for i in range(20)]},
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_kept_to_is_refused_in_a_sentence(grammars: Grammars, schema: Any) -> None:
    with pytest.raises(UsageError, match="The JSON schema"):
        grammars.constraint(schema)


def test_one_nested_without_end_too(grammars: Grammars) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(20_000):
        deep = {"items": deep}
    with pytest.raises(UsageError, match="nested"):
        grammars.constraint(deep)
