"""Families whose layers carry states, share caches or know other attention: scored, drawn, served and trained as transformers does."""

import json
from pathlib import Path

import pytest
import torch
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from benchmarks import _family_models, families
from clawback import engine
from clawback.errors import ModelError
from clawback.inference.batcher import Batcher
from clawback.models import traits
from clawback.models.types import GREEDY, Sampling
from clawback.sampling import ways
from clawback.sampling.batched_sampler import DrawSettings, sample
from clawback.sampling.choose import SamplingRequest
from clawback.sampling.conversations import Conversations, TurnRequest
from clawback.scoring.logprobs import Scorer
from clawback.templates.chat_tokens import Encoded

ROOT = Path(__file__).parents[3]
KINDS = {
    "sliding and shared attention": "gemma4_text",
    "linear attention": "qwen3_5_text",
    "convolution": "lfm2",
    "state space": "mamba",
    "state space and experts": "granitemoehybrid",
    "latent attention and experts beside dense layers": "deepseek_v3",
    "indexed attention": "deepseek_v32",
}
"""One family for each kind of layer. Full attention, sliding windows and plain experts are met in other tests all the time."""
SELDOM = ("state space", "indexed attention")
"""In the long tests: the first is met beside experts, too."""


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, id=kind, marks=[pytest.mark.slow] * (kind in SELDOM))
        for kind, name in KINDS.items()
    ],
)
def test_every_kind_of_layer_is_scored_drawn_and_served_as_transformers_does(family, tmp_path):
    _family_models.make(family, tmp_path)
    bench, row = families.Bench(tmp_path), families.Row(family)
    for _, step in families.STEPS[:4]:
        step(bench, row)
    attends = traits.attends_only(bench.policy.model.config)
    assert attends == (family in ("gemma4_text", "deepseek_v3"))
    assert row.draws == ("padded" if attends else "cached")
    assert row.scores == {"deepseek_v3": "packed", "deepseek_v32": "alone"}.get(family, "padded")


@pytest.mark.slow
@pytest.mark.parametrize("family", _family_models.families())
def test_every_family_goes_through_or_is_refused_in_a_sentence(family, tmp_path):
    row = families.examine(family, tmp_path)
    assert row.verdict in ("ok", "refused", "not made"), row
    assert _written()[family].startswith((row.verdict, "not run")), row


def _written():
    """Family → its result in docs/families.md."""
    lines = (ROOT / "docs/families.md").read_text("utf-8").splitlines()
    cells = [[cell.strip(" |") for cell in line.split(" | ")] for line in lines if line.startswith("| `")]
    return {cell[0].strip("`"): cell[4] for cell in cells}


def test_the_page_names_every_family_and_none_fails():
    written = _written()
    assert sorted(written) == _family_models.families()
    assert not [family for family, result in written.items() if result.startswith("failed")]


# ------------------------------------------------------------------------------ the way without padding


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lfm2")
    _family_models.make("lfm2", folder)
    return engine.load(str(folder))


PROMPTS = [[20, 30, 40], [21, 31], [22, 32, 42], [23, 33, 43, 53, 63]]


def full_logprobs(model, prompt, ids, temperature):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0].float() / temperature
    return logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0]


def draw(policy, **more):
    settings = {
        "samples": 3,
        "max_tokens": 12,
        "sampling": Sampling(0.9, top_p=0.9),
        "stop": range(0, 384, 9),
    }
    return sample(policy.model, PROMPTS, DrawSettings(**settings | {"seed": 4} | more))


def ids(groups):
    return [[answer.ids for answer in group] for group in groups]


def test_stops_seeds_and_log_probs_are_right_without_padding(hybrid):
    groups = draw(hybrid)
    stop = set(range(0, 384, 9))
    for prompt, group in zip(PROMPTS, groups, strict=True):
        assert len({answer.ids for answer in group}) > 1
        for answer in group:
            expected = full_logprobs(hybrid.model, prompt, answer.ids, 0.9)
            torch.testing.assert_close(torch.tensor(answer.logprobs), expected, atol=1e-4, rtol=0)
            assert answer.finished == (answer.ids[-1] in stop)
            assert answer.finished or len(answer.ids) == 12
            assert not stop & set(answer.ids[:-1])
    assert len({len(answer.ids) for group in groups for answer in group}) > 2  # rows left at different times
    assert groups == draw(hybrid)
    assert ids(groups) == ids(draw(hybrid, rows=2))  # however they are batched
    assert ids(groups) != ids(draw(hybrid, seed=5))


def test_a_cache_that_cannot_be_selected_from_or_gone_on_from_gives_the_same(hybrid, monkeypatch):
    expected = ids(draw(hybrid))
    way = ways.way_of(hybrid.model)
    assert way.cached
    assert way.selects
    assert not way.padded
    assert way.token_bytes > 0  # of the attention layer
    assert way.row_bytes > 0  # of the convolution

    def refuse(*_):
        raise NotImplementedError

    monkeypatch.setattr(ways, "_WAYS", {})
    monkeypatch.setattr(LinearAttentionCacheLayerMixin, "reorder_cache", refuse)
    assert (ways.way_of(hybrid.model).cached, ways.way_of(hybrid.model).selects) == (True, False)
    assert ids(draw(hybrid)) == expected
    monkeypatch.setattr(ways, "_WAYS", {hybrid.model: ways.Way()})
    assert ids(draw(hybrid)) == expected


def test_a_cache_that_forgets_is_not_gone_on_from(hybrid, monkeypatch):
    """What the library does is tried and not believed: here a step leaves the convolution's state as it was."""
    monkeypatch.setattr(ways, "_WAYS", {})
    kept = LinearAttentionCacheLayerMixin.__subclasses__()[0].update_conv_state

    def forget(self, states, *args, **more):
        seen = kept(self, states, *args, **more)
        self.conv_states[0].zero_()
        return seen

    monkeypatch.setattr(LinearAttentionCacheLayerMixin.__subclasses__()[0], "update_conv_state", forget)
    assert not ways.way_of(hybrid.model).cached


def test_conversations_are_drawn_as_they_would_be_alone(hybrid):
    turns = [TurnRequest(i, prompt, 100 + i, 2 + 3 * i) for i, prompt in enumerate(PROMPTS)]
    sampling = Sampling(0.8, top_p=0.9)
    together = Conversations(hybrid, sampling=sampling).draw(turns)
    alone = [Conversations(hybrid, sampling=sampling).draw([turn])[0] for turn in turns]
    assert [answer.ids for answer in together] == [answer.ids for answer in alone]
    assert all(len(answer.ids) <= turn.max_tokens for answer, turn in zip(together, turns, strict=True))


def test_the_server_answers_requests_that_come_and_go(hybrid):
    """Four at once, of several lengths: each says what it says alone, with a reason why it ended."""
    limits = [3, 9, 5, 7]
    expected = [
        sample(hybrid.model, [prompt], DrawSettings(max_tokens=limit, sampling=GREEDY))[0][0]
        for prompt, limit in zip(PROMPTS, limits, strict=True)
    ]
    batcher = Batcher(hybrid, [expected[1].ids[4]])
    tokens, ends = [[] for _ in PROMPTS], {}
    asks = [
        SamplingRequest(
            prompt,
            limit,
            lambda t, p, i=i: tokens[i].append((t, p)),
            lambda end, i=i: ends.update({i: end}),
            sampling=GREEDY,
        )
        for i, (prompt, limit) in enumerate(zip(PROMPTS, limits, strict=True))
    ]
    batcher.waiting = asks[:2]
    batcher._admit()
    with torch.no_grad():
        for step in range(12):
            batcher.waiting += asks[2:] if step == 1 else []
            for lane in list(batcher.lanes.values()):
                lane.step()
            batcher._admit()
    assert sorted(ends) == [0, 1, 2, 3]
    for i, answer in enumerate(expected):
        drawn = [token for token, _ in tokens[i]]
        assert drawn == list(answer.ids[: len(drawn)])
        assert ends[i] == ("stop" if drawn[-1] in batcher.stop else "length")
        assert ends[i] == "stop" or len(drawn) == limits[i]
        values = [value for _, value in tokens[i]]
        torch.testing.assert_close(
            torch.tensor(values), torch.tensor(answer.logprobs[: len(drawn)]), atol=1e-4, rtol=0
        )
    assert ends[1] == "stop"


def test_no_state_flows_from_one_sequence_into_the_next(hybrid):
    first, second = Encoded((20, 30), (40, 50, 60)), Encoded((21,), (31, 41, 51, 61))
    assert not hybrid.scorer.packed
    with torch.no_grad():
        alone = torch.cat([hybrid.scorer([one]).logprobs for one in (first, second)])
        torch.testing.assert_close(hybrid.scorer([first, second]).logprobs, alone, atol=1e-5, rtol=0)


def test_a_leak_is_found_where_nothing_says_that_there_is_a_state(folders, monkeypatch):
    """An attention that lets a packed sequence see a little of the one before it, in a model without any convolution."""
    from clawback.scoring import attention

    policy = engine.load(str(folders("llama")))
    assert policy.scorer.packed
    exact = attention.packed_attention

    def leaking(*given, **more):
        out, weights = exact(*given, **more)
        return out + 1e-4 * out.cumsum(1), weights

    monkeypatch.setattr(attention, "packed_attention", leaking)
    assert not Scorer(policy.model).packed


def test_a_model_that_reads_in_both_directions_is_refused_in_a_sentence(tmp_path):
    _family_models.make("bert", tmp_path)
    policy = engine.load(str(tmp_path))
    with pytest.raises(ModelError, match=r"both directions.*model list"):
        policy.sample([[20, 30]], DrawSettings(max_tokens=2))
    with pytest.raises(ModelError, match="both directions"):
        policy.logprobs([[{"role": "user", "content": "Hi"}]], ["Hello"])
    config = json.loads((tmp_path / "config.json").read_text()) | {"is_decoder": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert engine.load(str(tmp_path)).sample([[20, 30]], DrawSettings(max_tokens=2))
