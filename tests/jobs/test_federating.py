"""Two people and a shared folder: one adapter comes of it, and nothing that anybody said is in the folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from clawback import engine, store
from clawback.cli import main
from clawback.errors import UsageError
from clawback.federated import exchange
from clawback.federated.exchange import Terms
from clawback.jobs import federating
from clawback.paths import Home
from tests.conftest import rate_some


@pytest.mark.slow
def test_two_people_make_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared, homes = tmp_path / "shared", [Home(tmp_path / name) for name in ("anna", "ben")]
    for home in homes:
        rate_some(home)

    def run(home: Home, *arguments: str) -> int:
        monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
        return main(["federated", *arguments])

    assert run(homes[0], "begin", str(shared), "--rank", "4") == 0
    assert run(homes[0], "combine", str(shared)) == 2
    for home in homes:
        assert (
            run(
                home, "contribute", str(shared), "--name", home.root.name, "--seed", home.root.name[0] and "1"
            )
            == 0
        )
    assert run(homes[1], "combine", str(shared)) == 0
    assert "2 updates (anna, ben)" in capsys.readouterr().out
    one, two, made = (
        load_file(shared / "round-0001" / f"{n}.safetensors") for n in ("anna", "ben", "combined")
    )
    assert all(np.allclose(made[n], (one[n] + two[n]) / 2, atol=1e-6) for n in made)
    assert any(np.abs(v).max() > 0 for v in made.values())
    assert all("lora_B" in n for n in made)  # the first round trains B; A is the same for all and not sent
    with store.connect(homes[0].database) as db:
        words = [t.response for t in db.turns()]
    raw = b"".join(p.read_bytes() for p in shared.rglob("*") if p.is_file())
    assert not any(word[:40].encode() in raw for word in words)

    assert run(homes[0], "adopt", str(shared)) == 0
    with store.connect(homes[0].database) as db:
        version = db.version(1)
        assert (version.status, db.live().number, db.run(version.run_id or 0).algorithm) == (
            "candidate",
            0,
            "federated",
        )
        run_ = db.run(version.run_id or 0)
        learned, kept = (
            {f.turn_id for f in db.feedback(ids=ids)} for ids in (run_.train_ids, run_.held_out_ids)
        )
        assert learned, "what was contributed is no evidence any more"
        assert not learned & kept
    assert main(["gate", "1"]) in (0, 1)
    capsys.readouterr()
    adapter = load_file(Path(version.path) / "adapter_model.safetensors")
    named = {n.replace(".default", ""): v for n, v in made.items()}
    shown = {n: v for n, v in adapter.items() if "lora_B" in n}
    assert shown
    assert all(np.allclose(shown[n], named[n]) for n in shown)
    # A is as it was drawn: it is frozen, for nobody would be sent what it had learned.
    fresh = engine.load("embedded")
    fresh.attach(rank=4, alpha=8, seed=0)
    drawn = {n.replace(".default", ""): p for n, p in fresh.model.named_parameters() if "lora_A" in n}
    assert all(np.array_equal(adapter[n], p.detach().numpy()) for n, p in drawn.items())
    # The next round goes on from there.
    assert run(homes[0], "contribute", str(shared), "--name", "anna") == 0
    assert (shared / "round-0002" / "anna.safetensors").exists()


def folder_with(tmp_path: Path, **terms: object) -> Path:
    given: dict[str, object] = {"base": "embedded", "base_revision": "r", "rank": 2, "alpha": 4, "seed": 0}
    exchange.begin(tmp_path, Terms(**(given | terms)))  # type: ignore[arg-type]
    return tmp_path


def test_an_update_that_cannot_be_used_is_left_out_and_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    for name in ("anna", "ben", "carl"):
        exchange.put(folder, 1, name, {"lora_B": np.ones((3, 2))}, {"ratings": "10", "base": "r"})
    exchange.put(folder, 1, "dora", {"lora_B": np.full((3, 2), np.nan)}, {"ratings": "10", "base": "r"})
    exchange.put(folder, 1, "emil", {"lora_B": np.ones((3, 2))}, {"ratings": "10", "base": "another"})
    exchange.put(folder, 1, "fred", {"c": np.ones((9, 9))}, {"ratings": "10", "base": "r"})
    (folder / "round-0001" / "gerd.safetensors").write_bytes(b"\x80\x04pickle")
    done = federating.combine(folder)
    assert done.people == ("anna", "ben", "carl")
    assert [why.split(":")[0] for why in done.refused] == ["dora", "emil", "fred", "gerd"]
    with pytest.raises(UsageError):
        exchange.put(folder, 1, "../evil", {}, {})


def test_nobody_counts_for_more_than_agreed(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, most=20)
    exchange.put(folder, 1, "anna", {"lora_B": np.zeros((1, 1))}, {"ratings": "20", "base": "r"})
    exchange.put(folder, 1, "liar", {"lora_B": np.ones((1, 1))}, {"ratings": "99999999", "base": "r"})
    assert federating.combine(folder).weights == (20.0, 20.0)
    assert load_file(folder / "round-0001" / "combined.safetensors")["lora_B"] == pytest.approx(0.5)


def test_the_combined_change_is_followed_as_far_as_agreed_and_no_further_than_one_person_went(
    tmp_path: Path,
) -> None:
    folder = folder_with(tmp_path, step=1.25)
    people = {"anna": np.array([[4.0, 0.0]]), "ben": np.array([[0.0, 4.0]])}
    for number in (1, 2, 3):
        for name, change in people.items():
            change = change * (1000.0 if name == "ben" and number == 3 else 1.0)
            exchange.put(
                folder, number, name, {exchange.factor(number): change}, {"ratings": "9", "base": "r"}
            )
        federating.combine(folder, rule="mean")
    made = load_file(folder / "round-0002" / "combined.safetensors")
    assert np.allclose(made["lora_B"], [[2.5, 2.5]])
    assert np.allclose(made["lora_A"], [[2.5, 2.5]]), (
        "the rounds take turns, and what was learned before stays"
    )
    made = load_file(folder / "round-0003" / "combined.safetensors")
    # The median person went 2,002 far, so the mean (2, 2000) is followed no further than that.
    assert np.allclose(
        made["lora_B"], [[2.5, 2.5]] + np.array([[2.0, 2000.0]]) * min(1.25, 2002 / np.hypot(2, 2000))
    )
    assert np.allclose(made["lora_A"], [[2.5, 2.5]])
    with pytest.raises(UsageError, match="step"):
        Terms("embedded", "r", 2, 4, 0, step=-1.0)
    with pytest.raises(UsageError, match="Krum"):
        Terms("embedded", "r", 2, 4, 0, rule="krum", step=2.0)


def test_an_update_of_the_other_factor_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    for name in ("anna", "ben"):
        exchange.put(folder, 1, name, {"lora_B": np.ones((2, 2))}, {"ratings": "9", "base": "r"})
    federating.combine(folder)
    for name, factor in (("anna", "lora_A"), ("ben", "lora_A"), ("carl", "lora_B")):
        exchange.put(folder, 2, name, {factor: np.ones((2, 2))}, {"ratings": "9", "base": "r"})
    done = federating.combine(folder)
    assert done.people == ("anna", "ben")
    assert "carl" in done.refused[0]


def test_noise_is_paid_for_and_said(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, clip=1.0, noise=4.0)
    for number in (1, 2):
        for name in ("anna", "ben", "carl", "dora", "emil"):
            exchange.put(
                folder,
                number,
                name,
                {exchange.factor(number): 9 * np.ones((30, 30))},
                {"ratings": "200", "base": "r"},
            )
        done = federating.combine(folder)
        assert done.weights == (1.0,) * 5  # a person's share is bounded
        federating.cleared(folder, number)
    said = json.loads((folder / "round-0002" / "combined.json").read_text())
    assert said["epsilon"] == pytest.approx(0.46, abs=0.001)  # μ = √2/4, δ = 1/50
    assert exchange.names(folder, 1) == []
    # A clipped mean has norm 1, the noise of 4/5 a coordinate 24; together they are followed as far as a clipped person could go.
    for change in load_file(folder / "round-0002" / "combined.safetensors").values():
        assert np.linalg.norm(change) == pytest.approx(1.0)
        assert np.sum(change) / 30 == pytest.approx(1 / 24, abs=0.15)
        assert change.std() == pytest.approx(1 / 30, rel=0.05)
    with pytest.raises(UsageError, match="Noise"):
        Terms("embedded", "r", 2, 4, 0, rule="median", clip=1.0, noise=1.0)


def test_terms_cannot_be_changed_under_way(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    with pytest.raises(UsageError, match="already holds other terms"):
        folder_with(folder, rank=8)
    folder_with(folder)
    save_file({"lora_B": np.ones((1, 1))}, tmp_path / "x.safetensors")
