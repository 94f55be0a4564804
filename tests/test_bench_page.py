"""What benchmarks print becomes one page, each with its command and machine, also what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import _page


def test_each_benchmark_has_a_section_and_the_newest_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def table(argv: list[str]) -> int:
        print(f"| ours | theirs |\n| --- | --- |\n| {argv[1]} | 2 |")
        return 0

    def figures(_: list[str]) -> int:
        print('{"ratio": 2}')
        return 0

    assert _page.record("speed", "How fast it is.", ["--model", "a b"], table, tmp_path) == 0
    assert _page.record("speed", "How fast it is.", ["--model", "c d"], table, tmp_path) == 0
    assert _page.record("size", "How large it is.", [], figures, tmp_path) == 0
    assert capsys.readouterr().out.count("| ours | theirs |") == 2  # as without the page
    page = (tmp_path / "report.md").read_text("utf-8")
    assert page.count("## speed") == page.count("## size") == 1
    assert "`python -m benchmarks speed --model 'c d'`" in page
    assert "| c d | 2 |" in page
    assert "| a b | 2 |" not in page
    assert '```json\n{"ratio": 2}\n```' in page
    assert page.count("CPU seconds") == 2
    assert page.count("cores (load ") == 2
    assert "failed" not in page


def test_one_that_fails_is_on_the_page_and_says_so(tmp_path: Path) -> None:
    def broken(_: list[str]) -> int:
        print("half a table")
        raise RuntimeError("a peer would not start")

    with pytest.raises(RuntimeError, match="peer"):
        _page.record("broken", "What breaks.", [], broken, tmp_path)
    assert _page.record("refused", "What refuses.", [], lambda _: 3, tmp_path) == 3
    page = (tmp_path / "report.md").read_text("utf-8")
    assert "half a table" in page
    assert page.count("**It failed (exit status") == 2


def test_what_is_measured_beside_a_peer_heads_the_page_with_ratio_and_spread(tmp_path: Path) -> None:
    def speed(_: list[str]) -> int:
        _page.compare(
            "rate", peer="theirs", unit="a second", ours=[30.0, 10.0, 44.0], theirs=[10.0, 10.0, 11.0]
        )
        _page.compare(
            "cost", peer="theirs", unit="s", ours=[2.0] * 20, theirs=[1.0] * 19 + [400.0], more=False
        )
        return 0

    _page.record("speed", "How fast it is.", ["--now"], speed, tmp_path)
    _page.record("size", "How large it is.", [], lambda _: 0, tmp_path)
    page = (tmp_path / "report.md").read_text("utf-8")
    top = page.partition("## size")[0]
    # Round by round (3, 1 and 4 times), not of the medians (30 by 10); and one wild round of twenty is no spread.
    assert (
        "| rate | theirs | 30 | 10 | a second | **3.00** | 1.00 to 4.00 | 3 | `python -m benchmarks speed --now`"
        in top
    )
    assert "| cost | theirs | 2 | 1 | s | **0.50** | 0.50 to 0.50 | 20 |" in top


def test_what_a_failed_run_compared_is_not_at_the_head(tmp_path: Path) -> None:
    def half(_: list[str]) -> int:
        _page.compare("rate", peer="theirs", unit="a second", ours=[3.0], theirs=[1.0])
        return 1

    _page.record("speed", "How fast it is.", [], half, tmp_path)
    _page.record("size", "How large it is.", [], lambda _: 0, tmp_path)
    assert "| rate |" not in (tmp_path / "report.md").read_text("utf-8")
    with pytest.raises(ValueError, match="pairs"):
        _page.compare("rate", peer="theirs", unit="a second", ours=[3.0, 2.0], theirs=[1.0])
