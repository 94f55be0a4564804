"""What the embedded model is like: facts, styles, hints, perplexity."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from typing import Any

from clawback import engine
from clawback.extensions.demo import axes, corpus, tastes

ANSWERS = 256
HINTED = 24


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks embedded_model", description=__doc__)
    parser.add_argument("--model", default="embedded", help="another folder made by `clawback model make`")
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args(argv)
    policy = engine.load(options.model)
    asked = corpus.prompts("held_out", ANSWERS, options.seed)
    made = [c for [c] in policy.generate([p.messages for p in asked], seed=options.seed)]
    checks = [corpus.check_facts(p, c.text) for p, c in zip(asked, made, strict=True)]
    seen = Counter(name for c in made for name, shown in axes.axes(c.text).items() if shown)
    figures: dict[str, Any] = {
        "facts_right": sum(c.right for c in checks) / sum(c.stated for c in checks),
        "facts_an_answer": sum(c.stated for c in checks) / ANSWERS,
        "finished": sum(c.finished for c in made) / ANSWERS,
        "well_formed": sum(axes.well_formed(c.text) for c in made) / ANSWERS,
        "axes": {name: count / ANSWERS for name, count in sorted(seen.items())},
        "tastes": {
            name: sum(t.fits(p, c.text) for p, c in zip(asked, made, strict=True)) / ANSWERS
            for name, t in tastes.TASTES.items()
        },
        "hints_obeyed": hints(policy),
        "perplexity": perplexity(policy),
    }
    figures["hints_obeyed_mean"] = sum(figures["hints_obeyed"].values()) / len(figures["hints_obeyed"])
    print(json.dumps(figures, indent=2, ensure_ascii=False))
    return 0


def hints(policy: Any) -> dict[str, float]:
    """Share of answers that do what a hint after the question asks for."""
    found = {}
    for (name, value), words in corpus.HINTS.items():
        asked = corpus.prompts("held_out", HINTED, 9)
        conversations = [[{"role": "user", "content": f"{p.text} {words[0]}"}] for p in asked]
        made = policy.generate(conversations, seed=9)
        found[f"{name}={value}"] = sum(axes.axes(c.text)[name] == value for [c] in made) / HINTED
    return found


def perplexity(policy: Any) -> float:
    """A token of held-out dialogues in all styles."""
    text = corpus.neutral_text(100, 1)
    values = policy.logprobs([d[:-1] for d in text], [d[-1]["content"] for d in text])
    return math.exp(-sum(float(v.sum()) for v in values) / sum(len(v) for v in values))


if __name__ == "__main__":
    sys.exit(main())
