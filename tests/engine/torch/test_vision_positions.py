"""Models that work out positions from pictures (Qwen-VL): what is drawn in turns is what each would say by itself."""

from __future__ import annotations

import queue

import pytest
import torch

pytest.importorskip("PIL")

from clawback import engine
from clawback.inference.batcher import Batcher
from clawback.models.types import Sampling
from clawback.sampling.batched_sampler import stop_ids
from clawback.sampling.choose import SamplingRequest
from clawback.templates.vision import Vision
from tests.engine.conftest import tokenizer
from tests.engine.torch.test_vision import BLUE, RED, asked

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% for p in m['content'] %}{% if p['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif p['type'] == 'text' %}{{ p['text'] }}{% endif %}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARK = "<|image_pad|>"


class Looks:
    """What Qwen's own processor does with pictures and text; that one cannot be had without torchvision."""

    image_token = MARK

    def __init__(self, words, images):
        self.words, self.images = words, images

    def __call__(self, *, text, images, add_special_tokens, return_tensors):
        made = self.images(images=images, return_tensors=return_tensors)
        said = text[0]
        for grid in made["image_grid_thw"]:
            said = said.replace(MARK, "<|seen|>" * (int(grid.prod()) // 4), 1)
        ids = self.words(said.replace("<|seen|>", MARK), add_special_tokens=add_special_tokens)["input_ids"]
        kinds = [int(token == self.words.convert_tokens_to_ids(MARK)) for token in ids]
        return {"input_ids": [ids], **made, "mm_token_type_ids": torch.tensor([kinds])}


@pytest.fixture(scope="module", params=["Qwen2_5_VL", "Qwen3VL"])
def policy(request, tmp_path_factory):
    import transformers as t
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    words = tokenizer()
    marks = ("<|vision_start|>", "<|vision_end|>", MARK, "<|video_pad|>")
    roles = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    words.add_special_tokens({"additional_special_tokens": [*roles, *marks]})
    words.chat_template = TEMPLATE
    start, end, image, video = map(words.convert_tokens_to_ids, marks)
    torch.manual_seed(0)
    text = {
        "vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 100.0},
        "initializer_range": 0.3,
    }  # fmt: skip
    eye = {
        "depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
        "temporal_patch_size": 2, "out_hidden_size": 32, "initializer_range": 0.3,
    }  # fmt: skip
    eye |= (
        {"fullatt_block_indexes": [1], "window_size": 16}
        if request.param == "Qwen2_5_VL"
        else {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
    )
    config = getattr(t, f"{request.param}Config")(
        text_config=text, vision_config=eye, image_token_id=image, video_token_id=video,
        vision_start_token_id=start, vision_end_token_id=end,
    )  # fmt: skip
    place = tmp_path_factory.mktemp("qwen")
    getattr(t, f"{request.param}ForConditionalGeneration")(config).save_pretrained(place)
    words.save_pretrained(place)
    made = engine.load(str(place))
    size = {"shortest_edge": 64, "longest_edge": 4096}
    looks = Qwen2VLImageProcessorPil(patch_size=4, temporal_patch_size=2, merge_size=2, size=size)
    assert isinstance(made.chat.eyes, Vision)
    made.chat.eyes._processor = Looks(words, looks)
    made.sampling = Sampling(1.0)
    return made


def test_log_probs_as_drawn_are_those_of_the_whole_sequence(policy):
    talks = [asked(RED), ({"role": "user", "content": "Which colour?"},), asked(RED, BLUE)]
    for talk, group in zip(talks, policy.generate(talks, samples=2, max_tokens=6, seed=4), strict=True):
        said = policy.logprobs([talk] * 2, [one.ids for one in group])
        for one, values in zip(group, said, strict=True):
            assert torch.allclose(torch.tensor(one.logprobs), values, atol=1e-4)


def test_a_server_takes_turns_with_several(policy):
    """One has more pictures than the other, so the second is at other positions where both go on in turns; text goes on beside them."""
    talks = [asked(RED), asked(RED, BLUE), ({"role": "user", "content": "Which colour?"},)]
    batcher = Batcher(policy, stop_ids(policy.model, policy.chat.end_id))
    told: list[list[tuple[int, float]]] = [[] for _ in talks]
    ends: queue.SimpleQueue[str] = queue.SimpleQueue()
    prompts = [policy.chat.looked(talk) for talk in talks]
    for place, (ids, pixels) in enumerate(prompts):
        request = SamplingRequest(
            ids,
            3 + 3 * place,  # they end one after the other
            lambda token, logprob, place=place: told[place].append((token, logprob)),
            ends.put,
            sampling=Sampling(1.0),
            seed=place,
            pixels=pixels,
        )
        batcher.submit(request)
    batcher.start()
    assert {ends.get(timeout=60) for _ in talks} <= {"stop", "length"}
    batcher.close()
    for talk, rows in zip(talks, told, strict=True):
        assert rows
        [values] = policy.logprobs([talk], [[token for token, _ in rows]])
        assert torch.allclose(torch.tensor([value for _, value in rows]), values, atol=1e-4)
