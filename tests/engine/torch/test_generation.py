"""How a model answers: as its own folder says, unless the user's settings say otherwise."""

import pytest
import torch
from transformers import GenerationConfig

from clawback import config, engine
from clawback.models.loading import USUAL, own_sampling
from clawback.models.types import Sampling


class Model:
    def __init__(self, **named):
        self.generation_config = GenerationConfig(**named)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, USUAL),
        ({"do_sample": False}, USUAL),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, Sampling(0.6, 0.9)),  # as Llama 3
        ({"do_sample": True, "top_k": 64, "top_p": 0.95}, Sampling(1.0, 0.95, 64)),  # as Gemma 3
        (
            {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8},
            Sampling(0.7, 0.8, 20),
        ),  # as Qwen 3
        ({"temperature": 0.15}, Sampling(0.15)),  # as Mistral Small
        ({"do_sample": True}, Sampling()),
    ],
)
def test_what_a_folder_says(named, expected):
    assert own_sampling(Model(**named)) == expected


def test_a_model_without_a_generation_config_answers_as_usual():
    assert own_sampling(torch.nn.Linear(1, 1)) == USUAL


def test_the_embedded_model_is_drawn_from_as_it_is():
    policy = engine.load("embedded")
    assert policy.sampling == Sampling()
    assert policy.max_tokens == 160


def test_settings_go_before_the_models_own(folders):
    policy = engine.load(str(folders("llama")))
    assert policy.sampling == USUAL
    assert policy.max_tokens == policy.max_response
    policy.configure(config.GenerationSection(temperature=0.3, top_k=9, max_tokens=12))
    assert policy.sampling == Sampling(0.3, USUAL.top_p, 9)
    assert policy.max_tokens == 12
    assert policy.scorer.temperature == 0.3


def test_how_much_of_a_conversation_is_read_can_be_set(folders):
    policy = engine.load(str(folders("llama")))
    asked = [{"role": "user", "content": "word " * 400}]
    whole = len(policy.chat.prompt(asked, 2**31))
    policy.configure(config.GenerationSection(max_prompt=40))
    assert policy.max_prompt == 40
    assert len(policy.chat.prompt(asked, policy.max_prompt)) <= 40 < whole
    # What is answered has been read as it is scored.
    [[made]] = policy.generate([asked], max_tokens=6, seed=1)
    [values] = policy.logprobs([asked], [made.ids])
    torch.testing.assert_close(torch.tensor(made.logprobs), values, atol=1e-4, rtol=0)
    policy.configure(config.GenerationSection(max_prompt=10**6))
    assert policy.max_prompt == policy.info.context * 3 // 4
    assert policy.max_response == policy.info.context - policy.max_prompt
    policy.configure(config.GenerationSection())
    assert policy.max_prompt == min(4096, policy.info.context * 3 // 4)


def test_recorded_log_probs_are_those_that_the_scorer_finds(folders):
    policy = engine.load(str(folders("llama")))
    asked = [[{"role": "user", "content": f"Number {i}?"}] for i in range(3)]
    made = [one for [one] in policy.generate(asked, max_tokens=12, seed=3)]
    for one, values in zip(made, policy.logprobs(asked, [c.ids for c in made]), strict=True):
        torch.testing.assert_close(torch.tensor(one.logprobs), values, atol=1e-4, rtol=0)
