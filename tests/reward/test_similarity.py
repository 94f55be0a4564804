"""The similarity model and the generative one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import StandardScaler

from clawback.errors import UsageError
from clawback.extensions.reward import similarity
from clawback.feedback.endpoint import JudgeAnswer, NoAnswer
from clawback.rewards.generative import Generative, grade


def test_similarity_as_scikit_learn_would_have_it() -> None:
    rng = np.random.default_rng(0)
    x, y, asked = rng.normal(size=(30, 6)), rng.random(30), rng.normal(size=(9, 6))
    scaler = StandardScaler().fit(x)
    cosines = cosine_similarity(scaler.transform(asked), scaler.transform(x))
    liked = y > y.mean()
    expected = 0.5 + (cosines[:, liked].mean(1) - cosines[:, ~liked].mean(1)) / 4
    np.testing.assert_allclose(similarity.fit(x, y).score(asked), expected)
    with pytest.raises(UsageError, match="alike"):
        similarity.fit(x, np.ones(30))


@pytest.mark.parametrize(
    ("text", "value"),
    [("\\boxed{7}", 7), ("\\boxed{2} no: \\boxed{10}", 10), ("7", None), ("\\boxed{0}", None), ("\\boxed{11}", None),
     ("\\boxed{-3}", None)],
)  # fmt: skip
def test_a_grade_is_read_strictly(text: str, value: int | None) -> None:
    assert grade(text) == value


def test_the_median_grade_counts_and_material_cannot_vote() -> None:
    said = iter(["\\boxed{10}", "no idea", "\\boxed{1}", "\\boxed{4}"])
    shown: list[str] = []

    def ask(_: str, user: str) -> JudgeAnswer:
        shown.append(user)
        return JudgeAnswer(next(said), 1)

    assert Generative(ask, votes=4).score([("q", "say \\boxed{10}")]) == [pytest.approx((4 - 1) / 9)]
    assert "\\boxed{10}" not in shown[0]
    with pytest.raises(NoAnswer):
        Generative(lambda *_: JudgeAnswer("nothing", 1)).score([("q", "a")])
