"""Branches: whatever a program asks, every sampled token is learned once, after the prompt that it was sampled after."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.rollouts.program_dialogue import EpisodeBranches, unheard

TOKENS = st.lists(st.integers(0, 3), max_size=4)
"""Few tokens, so that prompts often begin alike."""


@st.composite
def exchanges(draw):
    """Prompts, some of which go on from what was read and written before, and the replies to them."""
    rounds, histories = [], []
    for _ in range(draw(st.integers(1, 8))):
        base = draw(st.sampled_from([[], *histories]))
        prompt = [*base, *draw(TOKENS)]
        reply = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
        rounds.append((prompt, reply))
        histories += [[*prompt, *reply], [*prompt, *reversed(reply)]]  # the second: tokenized otherwise
    return rounds


@settings(max_examples=200, deadline=None)
@given(exchanges())
def test_each_sampled_token_is_in_one_branch_after_its_own_prompt(rounds):
    branches, spans = EpisodeBranches(), []
    for number, (prompt, reply) in enumerate(rounds):
        branch = branches.read(prompt)
        spans.append((branch, *branches.write(reply, [float(number)] * len(reply))))
    final = branches.branches
    assert sum(sum(branch.mask) for branch in final) == sum(len(reply) for _, reply in rounds)
    for number, ((prompt, reply), (place, start, end)) in enumerate(zip(rounds, spans, strict=True)):
        branch = final[place]
        assert list(branch.ids[:start]) == prompt
        assert list(branch.ids[start:end]) == reply
        assert all(branch.mask[start:end])
        assert set(branch.logprobs[start:end]) == {float(number)}
    for branch in final:
        assert all(
            value == 0.0 for value, wrote in zip(branch.logprobs, branch.mask, strict=True) if not wrote
        )
        assert len(branch.ids) == len(branch.mask) == len(branch.logprobs)


@settings(max_examples=100, deadline=None)
@given(exchanges())
def test_a_prompt_continues_the_longest_branch_that_it_begins_with(rounds):
    branches = EpisodeBranches()
    for prompt, reply in rounds:
        lengths = [len(b.ids) for b in branches.branches if list(prompt[: len(b.ids)]) == list(b.ids)]
        count = len(branches.branches)
        place = branches.read(prompt)
        assert (place < count) == bool(lengths)
        branches.write(reply, [0.0] * len(reply))
        if lengths:
            assert len(branches.branches[place].ids) == len(prompt) + len(reply)


def test_what_is_shown_of_a_request_is_what_is_new_in_it():
    user, reply, tool = ({"role": role, "content": role} for role in ("user", "assistant", "tool"))
    assert unheard([user], []) == [user]
    assert unheard([user, reply, tool], [user]) == [tool]
    summary = {"role": "user", "content": "so far"}
    assert unheard([summary, reply], [user, reply, tool]) == [summary]
