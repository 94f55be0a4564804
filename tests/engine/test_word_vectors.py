"""Vectors of words, which a reader of ratings sums up, are the base's own input embeddings."""

import numpy as np
import pytest

pytest.importorskip("peft")

from clawback import engine


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


def ids_of(policy, text):
    return np.array(policy.tokenizer.encode(text, add_special_tokens=False))


def test_a_token_that_begins_a_word_has_its_embedding_and_others_have_none(policy):
    ids = ids_of(policy, "see the otter, and 42!")
    texts = [policy.tokenizer.decode([int(token)]) for token in ids]
    vectors = policy.word_vectors(ids)
    table = policy.model.get_input_embeddings().weight.detach().float().numpy()
    for text, token, vector in zip(texts, ids, vectors, strict=True):
        is_word = text[:1] == " " and text.strip().isalpha() and len(text.strip()) >= 3
        np.testing.assert_allclose(vector, table[token] if is_word else 0.0)
    assert vectors.any()
    assert not vectors[[text.strip() in (",", "!", "42") for text in texts]].any()


def test_an_adapter_changes_nothing(policy):
    ids = ids_of(policy, " otters rivers")
    before = policy.word_vectors(ids)
    trained = engine.load("embedded")
    trained.attach(rank=4, alpha=4, seed=0)
    np.testing.assert_array_equal(trained.word_vectors(ids), before)


@pytest.mark.parametrize("table", [None, NotImplementedError()])
def test_a_model_without_a_table_of_embeddings_has_no_words(policy, monkeypatch, table):
    def embeddings():
        if isinstance(table, Exception):
            raise table
        return table

    monkeypatch.setattr(policy.model, "get_input_embeddings", embeddings)
    assert not policy.word_vectors(ids_of(policy, " otters rivers")).any()
