"""An encoder made here, for those who name none: a word-piece vocabulary from the rated texts and a small BERT without any past.

It knows no language beyond what was rated, so it learns which words, lengths and openings go with a good score. On a few thousand
answers that is about what can be learned without a pretrained encoder (research/benchmarks/2026-11-27-reward-model.md); name one for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

VOCABULARY = 4000
HIDDEN = 64
LAYERS = 1
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def make(folder: Path, texts: Sequence[str], *, max_length: int, dropout: float, seed: int) -> None:
    """Write a Hugging Face folder with random weights into an existing folder. The same texts and seed give the same bits."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    size = _tokenizer(folder, texts, max_length)
    config = BertConfig(
        vocab_size=size,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=2 * HIDDEN,
        max_position_embeddings=max_length,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=0,
        num_labels=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(config)
    model.save_pretrained(folder)


def _tokenizer(folder: Path, texts: Sequence[str], max_length: int) -> int:
    """Word pieces of the texts, as BERT has them ([CLS] prompt [SEP] response [SEP]); the size of the vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False, min_frequency=2
        ),
    )
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=max_length,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)
    return int(made.get_vocab_size())
