"""Pictures in training: a small model that sees, made here, against its own forward, run by hand."""

from __future__ import annotations

import base64
import dataclasses
import io

import pytest
import torch

pytest.importorskip("PIL")

from clawback import engine
from clawback.errors import TrainingError
from clawback.extensions.scale.process_group import from_plain, to_plain
from clawback.gate.fresh import VersionPair, draw
from clawback.models.types import Sampling
from clawback.pictures import pictures
from clawback.records import Part, Sample
from clawback.sources import plan
from clawback.templates import vision
from clawback.trainer.examples import TrainingExample
from clawback.trainer.run import TrainingRun
from tests.engine.conftest import tokenizer

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% for p in m['content'] %}{% if p['type'] == 'image' %}<image>"
    "{% elif p['type'] == 'text' %}{{ p['text'] }}{% endif %}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PATCHES = 4
"""Of a picture of 16 × 16."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Llava of two layers that looks through a CLIP of one."""
    import transformers as t
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    words = tokenizer()
    words.add_special_tokens(
        {"additional_special_tokens": ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<image>"]}
    )
    words.chat_template = TEMPLATE
    torch.manual_seed(0)
    text = t.LlamaConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=512, pad_token_id=0, bos_token_id=2, eos_token_id=2, initializer_range=0.2,
    )  # fmt: skip
    eye = t.CLIPVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8, initializer_range=0.2
    )  # fmt: skip
    model = t.LlavaForConditionalGeneration(
        t.LlavaConfig(
            vision_config=eye,
            text_config=text,
            image_token_index=words.convert_tokens_to_ids("<image>"),
            vision_feature_layer=-1,
            vision_feature_select_strategy="default",
            initializer_range=0.2,
        )
    )
    looks = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    made = t.LlavaProcessor(
        image_processor=looks, tokenizer=words, patch_size=8, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, chat_template=TEMPLATE,
    )  # fmt: skip
    place = tmp_path_factory.mktemp("llava")
    model.save_pretrained(place)
    made.save_pretrained(place)
    return place


def picture(colour: tuple[int, int, int], kind: str = "PNG") -> str:
    from PIL import Image

    made = io.BytesIO()
    Image.new("RGB", (20, 16), colour).save(made, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(made.getvalue()).decode()}"


def asked(*colours, text="Which colour?"):
    seen = [{"type": "image_url", "image_url": {"url": picture(colour)}} for colour in colours]
    return ({"role": "user", "content": [*seen, {"type": "text", "text": text}]},)


RED, BLUE = (250, 10, 10), (10, 10, 250)


def stirred(folder):
    policy = engine.load(str(folder))
    policy.attach(rank=4, alpha=4, seed=1)
    torch.manual_seed(5)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.1
    return policy


def by_hand(policy, one):
    ids = torch.tensor([[*one.prompt, *one.response]])
    with torch.no_grad():
        logits = policy.model(input_ids=ids, use_cache=False, **one.pixels.inputs).logits[0].float()
    rows = (logits / policy.sampling.scale).log_softmax(-1)[len(one.prompt) - 1 : -1]
    return rows.gather(1, torch.tensor(one.response)[:, None])[:, 0]


def test_logprobs_with_pictures_are_those_of_the_models_own_forward(folder):
    policy = stirred(folder)
    samples = [
        Sample(i, asked(*colours), "It is red.", 1.0)
        for i, colours in enumerate([(RED,), (BLUE,), (RED, BLUE)])
    ]
    encoded = [policy.encode(one) for one in samples]
    mark = policy.tokenizer.convert_tokens_to_ids("<image>")
    assert [one.prompt.count(mark) for one in encoded] == [PATCHES, PATCHES, 2 * PATCHES]
    text = policy.encode(Sample(9, ({"role": "user", "content": "Which colour?"},), "It is red.", 1.0))
    assert text.pixels is None
    got = policy.scorer([encoded[0], text, *encoded[1:]]).split()
    for one, values in zip(encoded, [got[0], *got[2:]], strict=True):
        assert torch.allclose(values, by_hand(policy, one), atol=1e-4)
    assert torch.allclose(got[1], policy.scorer([text]).logprobs, atol=1e-4)
    # The same words and another picture: the model sees it.
    assert encoded[0].prompt == encoded[1].prompt
    assert (got[0] - got[2]).abs().max() > 1e-3


def test_the_adapter_is_on_the_language_part_alone_and_learns_which_picture_is_which(folder, tmp_path):
    policy = engine.load(str(folder))
    policy.attach(rank=8, alpha=8, seed=1)
    names = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    assert names
    assert all("language_model.layers" in name and "lora_" in name for name in names)

    samples = [
        Sample(2 * i + j, asked(colour), word, 1.0 if i == j else -1.0, (Part(0, "rating", 1.0, 1.0),))
        for i, colour in enumerate((RED, BLUE))
        for j, word in enumerate(("red", "blue"))
    ]
    usual = engine.recipe(policy.info, "balanced", "reinforce")
    # What a model of random weights says of a colour has to go far to change.
    recipe = dataclasses.replace(usual, steps=40, learning_rate=0.01, max_drift=100.0, max_reward_drop=100.0)
    engine.train(policy, samples, recipe, seed=0, out=tmp_path)

    def prefers(which):
        said = policy.logprobs([asked(which)] * 2, ["red", "blue"])
        return float(said[0].sum() - said[1].sum())

    assert prefers(RED) > 5
    assert prefers(BLUE) < -5
    again = engine.load(str(folder), adapter=tmp_path / "adapter")
    said = again.logprobs([asked(RED)], ["red"])[0]
    assert torch.allclose(said, policy.logprobs([asked(RED)], ["red"])[0], atol=1e-5)
    # What answers looks as well, and so do the chat and the gate, which ask it.
    [[red], [blue]] = again.generate([asked(RED), asked(BLUE)], sampling=Sampling(0.0), max_tokens=8)
    assert [red.text, blue.text] == ["red", "blue"]


def test_answers_to_pictures_stand_in_order_with_the_log_probs_of_the_learner(folder):
    policy = stirred(folder)
    words = ({"role": "user", "content": "Which colour?"},)
    talks = [asked(RED), words, asked(RED, BLUE), asked(BLUE)]
    made = policy.generate(talks, samples=2, max_tokens=6, seed=3)
    assert [len(group) for group in made] == [2, 2, 2, 2]
    for talk, group in zip(talks, made, strict=True):
        said = policy.logprobs([talk] * 2, [one.ids for one in group])
        for one, values in zip(group, said, strict=True):
            assert torch.allclose(torch.tensor(one.logprobs), values, atol=1e-4)
    assert made == policy.generate(talks, samples=2, max_tokens=6, seed=3)
    # A prompt has the random numbers of its place, whatever stands in the others.
    alone = policy.generate([words] * 4, samples=2, max_tokens=6, seed=3)[1]
    assert [one.ids for one in alone] == [one.ids for one in made[1]]


def test_the_gate_compares_answers_to_what_was_seen(folder):
    policy = stirred(folder)
    fresh = draw(policy, VersionPair(None, None), [], [asked(RED), asked(BLUE)], {"max_tokens": 5, "seed": 1})
    policy.put(None)
    seen = policy.logprobs(fresh.prompts, [list(one.ids) for one in fresh.candidate.completions])
    for one, values in zip(fresh.candidate.completions, seen, strict=True):
        assert torch.allclose(torch.tensor(one.logprobs), values, atol=1e-4)


def test_fresh_answers_to_pictures_are_refused_in_a_sentence(folder, tmp_path):
    policy = engine.load(str(folder))
    samples = [
        Sample(i, asked(RED), "red", r, (Part(0, "rating", r, 1.0),)) for i, r in enumerate((1.0, -1.0))
    ]
    with pytest.raises(TrainingError, match=r"rollouts needs fresh answers .* to pictures are not drawn yet"):
        engine.train(
            policy, samples, engine.recipe(policy.info, "balanced", "rollouts"), seed=0, out=tmp_path
        )


@pytest.mark.slow
def test_answers_to_pictures_are_read_for_what_is_liked_and_fresh_ones_are_drawn_to_words(folder):
    policy = engine.load(str(folder))
    shown = [asked(RED if i % 2 else BLUE, text=f"Colour {i}?") for i in range(12)]
    said = [
        ({"role": "user", "content": f"Tell me of {thing}."},) for thing in ("tea", "rain", "bread", "moss")
    ]
    others = [({"role": "user", "content": "What is wool?"},), asked(RED, text="And this?")]
    samples = [
        Sample(i, talk, answer, reward, (Part(0, "rating", reward, 1.0),))
        for i, talk in enumerate([*shown, *said])
        for answer, reward in [
            ("- one\n- two\n- three", 1.0) if i % 2 else ("One and two and three it is.", -1.0)
        ]
    ]
    recipe = engine.recipe(policy.info, "balanced", "auto")
    recipe = dataclasses.replace(recipe, extra={"grounding": 32})
    made = plan.plan(TrainingRun(policy, samples, recipe, prompts=others, seed=0))
    # Four ratings say nothing; sixteen do, twelve of them of answers to pictures.
    assert "16 ratings show a pattern" in made.note
    assert made.name == "rollouts"
    words = {tuple(policy.chat.prompt(talk)) for talk in [*said, others[0]]}
    assert {one.encoded.question for one in made.source.examples(0)} <= words
    assert not any(one.encoded.pixels for one in made.source.examples(0))


def test_what_is_too_long_loses_its_oldest_pictures(folder):
    policy = engine.load(str(folder))
    talk = (*asked(RED), {"role": "assistant", "content": "Red."}, *asked(BLUE))
    whole, both = policy.chat.looked(talk)
    less, last = policy.chat.looked(talk, len(whole) - 1)
    assert both.inputs["pixel_values"].shape[0] == 2
    assert last.inputs["pixel_values"].shape[0] == 1
    assert last.digest == policy.chat.looked(asked(BLUE))[1].digest
    assert len(less) < len(whole)
    assert policy.chat.looked(talk, 8)[1] is None


def test_a_mark_in_a_persons_text_is_no_picture(folder):
    policy = engine.load(str(folder))
    mark = policy.tokenizer.convert_tokens_to_ids("<image>")
    ids, _ = policy.chat.looked(asked(RED, text="Is <image> a mark?"))
    assert ids.count(mark) == PATCHES


@pytest.mark.parametrize(
    "address",
    ["https://example.org/a.png", "file:///etc/passwd", "/etc/passwd", "data:text/plain;base64,AAAA", "data:image/png;base64,%%%", ""],
)  # fmt: skip
def test_nothing_is_fetched_for_a_picture(address):
    assert (
        pictures([{"type": "image_url", "image_url": {"url": address}}, {"type": "image", "url": address}])
        == []
    )


def test_a_picture_that_cannot_be_read_or_is_too_large_is_left_out(folder, monkeypatch, caplog):
    """Conversations are captured as they come: one broken file must not end every run."""
    policy = engine.load(str(folder))
    whole = base64.b64decode(picture(RED).split(",")[1])
    for broken in (whole[:40], whole[:8] + b"\0" * 50, b"\xff\xd8\xff" + b"no picture at all"):
        address = "data:image/png;base64," + base64.b64encode(broken).decode()
        both = [{"type": "image_url", "image_url": {"url": address}}, *asked(RED)[0]["content"]]
        said = policy.chat.looked(({"role": "user", "content": both},))
        assert said[0] == policy.chat.looked(asked(RED))[0]
    assert "is left out" in caplog.text
    monkeypatch.setattr(vision, "MOST_PIXELS", 100)
    assert policy.chat.looked(asked(RED))[1] is None


def test_an_example_with_a_picture_goes_to_another_process_whole(folder):
    policy = engine.load(str(folder))
    one = policy.encode(Sample(1, asked(RED), "red", 1.0))
    flat = torch.zeros(len(one.response))
    back = from_plain(to_plain(TrainingExample(one, 1.0, flat, flat)))
    assert back.encoded.prompt == one.prompt
    assert back.encoded.pixels.digest == one.pixels.digest
    assert torch.equal(back.encoded.pixels.inputs["pixel_values"], one.pixels.inputs["pixel_values"])


def test_a_model_that_does_not_see_reads_the_words(folders):
    policy = engine.load(str(folders("llama")))
    one = policy.encode(Sample(1, asked(RED), "red", 1.0))
    assert one.pixels is None
    assert (
        one.prompt
        == policy.encode(Sample(1, ({"role": "user", "content": "Which colour?"},), "red", 1.0)).prompt
    )
