"""Taps by whether an answer was good: a judge model's graded preferences are the person, and what a base knows of the answers is a feature.

Of ``PROMPTS`` prompts there are two answers each; with ``--states``, those to ``READ`` of them are read once by a base model: hidden states at three depths, and what it thinks of them (log-probability of the tokens under
the prompt and without it, the difference, how often a token is the likeliest, and so on). A person rates one answer to ``count`` of the prompts. The answers to
the other prompts are graded: the AUC for the best ``GOOD_SHARE``, and how often the better one of two answers to one prompt has the higher grade.

The scores are how probably the judge prefers the answer to a strong model's. Most are near 0, so ratings are made of them in four ways: a tap (among the best
or not), the score centred by the person's mean (the scale's ends held), its rank among the person's own, and the rank centred in the same way.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PROMPTS, READ, EACH = 240, 80, 2
"""Prompts where text alone is looked at, and where a base reads the answers; answers to each."""
PROMPT_TOKENS, ANSWER_TOKENS = 40, 72
LONGEST_PROMPT = 200
GOOD_SHARE = 0.4
DEPTHS = (1 / 3, 1 / 2, 2 / 3)
TAP, CENTRED, RANKS, HELD = "taps", "centred", "ranks", "ranks, ends held"


def items(path: Path, models: Sequence[str], count: int) -> list[tuple[str, str, float]]:
    """(prompt, answer, score), ``EACH`` to each of ``count`` prompts."""
    by: dict[str, list[tuple[str, str, float]]] = {}
    for line in path.read_text("utf-8").splitlines():
        if (
            line.strip()
            and (one := json.loads(line))["model"] in models
            and len(one["prompt"]) < LONGEST_PROMPT
        ):
            by.setdefault(one["prompt"], []).append((one["prompt"], one["response"], one["score"]))
    prompts = sorted(prompt for prompt, some in by.items() if len(some) >= EACH)
    random.Random(1).shuffle(prompts)
    return [
        one for n, prompt in enumerate(prompts[:count]) for one in random.Random(n).sample(by[prompt], EACH)
    ]


def ratings(scores: Floats, how: str) -> Floats:
    """What a person says of answers with these scores in [0, 1]; in [-1, 1]."""
    if how == TAP:
        return np.where(scores > np.quantile(scores, 1 - GOOD_SHARE), 1.0, -1.0)
    if how in (RANKS, HELD):
        from scipy.stats import rankdata

        scores = np.asarray((rankdata(scores) - 0.5) / len(scores))
        if how == RANKS:
            return 2 * scores - 1
        scores = (scores - scores.min()) / np.ptp(scores)
    mean = scores.mean()
    return np.where(scores >= mean, (scores - mean) / max(1 - mean, 1e-9), (scores - mean) / max(mean, 1e-9))


def read(folder: str, pairs: Sequence[tuple[str, str]], cache: Path) -> dict[str, Floats]:
    """What a base makes of the answers; from ``cache`` where that was read before."""
    if cache.is_file():
        with np.load(cache) as found:
            return {name: found[name].astype(np.float64) for name in found.files}
    import torch

    from clawback import engine

    policy = engine.load(folder, dtype="float32")
    model, rows = policy.scorer.model, []
    for place, (prompt, text) in enumerate(pairs):
        views = []
        for asked in (prompt, ""):
            one = policy.chat.encode(
                [{"role": "user", "content": asked}], text, None, limits=(PROMPT_TOKENS, 2048)
            )
            ids = torch.tensor([[*one.prompt, *one.response[:ANSWER_TOKENS]]])
            with torch.no_grad():
                made = model(input_ids=ids, output_hidden_states=asked != "")
            start = len(one.prompt)
            logs = torch.log_softmax(made.logits[0, start - 1 : -1].float(), -1)
            own = logs.gather(1, ids[0, start:, None])[:, 0]
            views.append((own, logs, made.hidden_states, start, ids[0, start:]))
        rows.append(_row(views))
        if place % 20 == 0:
            print(f"{place} of {len(pairs)} read", flush=True)
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    cache.parent.mkdir(exist_ok=True)
    np.savez(cache, **{name: values.astype(np.float32) for name, values in table.items()})
    return table


def _row(views: Sequence[Any]) -> dict[str, Floats]:
    (own, logs, states, start, ids), (bare, *_) = views
    entropy = -(logs.exp() * logs).sum(-1)
    depths = [states[round(depth * (len(states) - 1))][0, start:] for depth in DEPTHS]
    known = [
        own.mean(), bare.mean(), (own - bare).mean(), own[:16].mean(), own.quantile(0.1), (own - bare).quantile(0.1),
        (logs.argmax(-1) == ids).float().mean(), entropy.mean(), (own + entropy).mean(),
    ]  # fmt: skip
    return {
        "mean of the answer": np.concatenate([one.mean(0).float().numpy() for one in depths]),
        "end of the answer": np.concatenate([one[-1].float().numpy() for one in depths]),
        "what the base thinks": np.array([float(value) for value in known]),
    }


def quality(path: Path, models: Sequence[str], folder: str | None, counts: Sequence[int], draws: int, results: Path) -> dict[str, Any]:  # fmt: skip
    """By features, ratings and draw: AUC and accuracy on pairs of answers to prompts that were not rated; and p of the trust."""
    from benchmarks.reading import _ids, auc
    from clawback.rewards.reward_ensemble import RULES, Ratings, fit
    from clawback.rewards.rule_posterior import Space
    from clawback.rewards.views import Answers, Views

    asked = READ if folder else PROMPTS
    some = items(path, models, asked)
    texts, scores = [text for _, text, _ in some], np.array([score for *_, score in some])
    good = scores > np.quantile(scores, 1 - GOOD_SHARE)
    plain = Answers(_ids(texts), texts, np.zeros((len(texts), 0)), [prompt for prompt, *_ in some])
    features: dict[str, Mapping[str, Floats]] = {"text": {}}
    if folder:
        known = read(
            folder, [(p, t) for p, t, _ in some], results / f"reading-quality-{Path(folder).stem}.npz"
        )
        thinks = {"what the base thinks": known["what the base thinks"]}
        features |= {"text, what the base thinks": thinks, "text, all of the base": known}
    rows = []
    for name, states in features.items():
        answers = replace(plain, states=states)
        views = Views.ground(answers)
        space, seen = Space.of(views.signs(answers), views.layout), views.view(answers)
        for count in counts:
            for draw in range(draws):
                rng = random.Random(f"{count} {draw}")
                chosen = rng.sample(range(len(some) // EACH), count)
                places = np.array([EACH * p + rng.randrange(EACH) for p in chosen])
                rest = np.array([i for i in range(len(some)) if i // EACH not in set(chosen)])
                for how in (TAP, CENTRED, RANKS, HELD):
                    made = fit(views, space, seen[places], Ratings(ratings(scores[places], how)))
                    grades = made.score(seen[rest], RULES, 0.0)
                    first, second = grades[::EACH], grades[1::EACH]
                    apart = scores[rest][::EACH] - scores[rest][1::EACH]
                    decided = np.abs(apart) > 0
                    right = np.sign(first - second)[decided] == np.sign(apart[decided])
                    rows.append({"features": name, "ratings": count, "how": how, "draw": draw, "auc": auc(grades, good[rest]), "pairs": float(right.mean()), "p": made.trust.p})  # fmt: skip
    return {"rows": rows, "base": folder}


def table(found: Mapping[str, Any]) -> str:
    from benchmarks.reading import interval

    lines = ["| features | ratings | said as | AUC | pairs | trusted |", "|" + " --- |" * 6]
    cells = dict.fromkeys((r["features"], r["ratings"], r["how"]) for r in found["rows"])
    for cell in cells:
        rows = [r for r in found["rows"] if (r["features"], r["ratings"], r["how"]) == cell]
        shown = " | ".join(interval([r[name] for r in rows]) for name in ("auc", "pairs"))
        lines.append(
            f"| {' | '.join(map(str, cell))} | {shown} | {sum(r['p'] <= 0.08 for r in rows)} of {len(rows)} |"
        )
    return "\n".join(lines)
