"""Two people and a shared folder: one adapter comes of it, and nothing that anybody said is in the folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from clawback import engine, store
from clawback.cli import main
from clawback.errors import StoreError, UsageError
from clawback.extensions.federated import exchange, federating
from clawback.extensions.federated.federation_terms import Terms
from clawback.paths import Home
from tests.conftest import rate_some
from tests.federated.team import SHAPES, Team


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
    assert run(homes[1], "join", str(shared)) == 0
    assert run(homes[0], "invite", str(shared), "ben", federating.signer(homes[1]).public) == 0
    # The founder enters by contributing under a name; the others have theirs.
    assert run(homes[0], "contribute", str(shared), "--name", "anna", "--seed", "1") == 0
    assert run(homes[1], "contribute", str(shared), "--seed", "1") == 0
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


def home_in(tmp_path: Path, team: Team, name: str) -> Home:
    """A home with that person's key."""
    home = Home(tmp_path / f"home-{name}")
    home.create()
    (home.root / "federated.key").write_bytes((team.root / f"{name}.key").read_bytes())
    return home


def run(home: Home, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    return main(["federated", *arguments])


def test_who_has_not_joined_takes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    team = Team(tmp_path, ["anna", "ben"])
    ben, stranger = home_in(tmp_path, team, "ben"), home_in(tmp_path, team, "stranger")
    with pytest.raises(UsageError, match="not joined it"):
        federating.combine(ben, team.folder)
    assert run(ben, monkeypatch, "join", str(team.folder)) == 0
    said = capsys.readouterr().out
    assert team.terms.digest in said
    assert team.founder.public in said
    assert "as ben" in said
    assert run(stranger, monkeypatch, "join", str(team.folder)) == 0
    assert federating.signer(stranger).public in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"federated invite .* NAME"):
        federating.contribute(stranger, team.folder)
    with pytest.raises(UsageError, match="You are ben"):
        federating.contribute(ben, team.folder, "anna")
    for change in (federating.invite, lambda *given: federating.remove(*given[:3])):
        with pytest.raises(UsageError, match="Only the founder"):
            change(ben, team.folder, "zoe", "a" * 64)
    with pytest.raises(UsageError, match="Only the founder"):
        federating.clear(ben, team.folder, 1)


def test_terms_that_somebody_changed_are_not_followed(tmp_path: Path) -> None:
    team = Team(tmp_path, ["anna", "ben"])
    ben = home_in(tmp_path, team, "ben")
    federating.join(ben, team.folder)
    assert federating.load(ben, team.folder).digest == team.terms.digest
    path = team.folder / "federation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"most": 9}))
    with pytest.raises(UsageError, match="somebody has changed them"):
        federating.load(ben, team.folder)


def test_an_older_list_of_members_is_not_taken_again(tmp_path: Path) -> None:
    team = Team(tmp_path, ["anna", "ben", "mal"])
    ben = home_in(tmp_path, team, "ben")
    federating.join(ben, team.folder)
    old = (team.folder / "members.json").read_bytes()
    team.set_members(["anna", "ben"], number=5)
    assert "mal" not in federating.load(ben, team.folder).roster.members
    (team.folder / "members.json").write_bytes(old)
    with pytest.raises(UsageError, match="an older one"):
        federating.load(ben, team.folder)
    (ben.root / "federations.json").write_text("[" * 50_000)
    with pytest.raises(StoreError, match="damaged"):
        federating.load(ben, team.folder)


def test_the_founder_invites_restores_and_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, anna, ben = tmp_path / "team", Home(tmp_path / "anna"), Home(tmp_path / "ben")
    assert run(anna, monkeypatch, "begin", str(folder), "--rank", "2", "--name", "anna") == 0
    terms = exchange.load_federation(folder).terms
    assert terms.shapes_of("lora_A")
    assert terms.shapes_of("lora_B")
    assert run(ben, monkeypatch, "key") == 0
    key = capsys.readouterr().out.split()[-1]
    assert run(anna, monkeypatch, "invite", str(folder), "ben", key) == 0
    assert run(anna, monkeypatch, "invite", str(folder), "ben2", key) == 2
    assert "each key has one vote" in capsys.readouterr().err
    (folder / "members.json").write_text("{}")
    with pytest.raises(UsageError, match="not signed by the founder"):
        federating.load(anna, folder)
    assert run(anna, monkeypatch, "invite", str(folder), "ben", key) == 0
    assert sorted(exchange.load_federation(folder).roster.members) == ["anna", "ben"]
    assert run(anna, monkeypatch, "begin", str(folder), "--rank", "2") == 0  # once more: nothing changes
    assert sorted(exchange.load_federation(folder).roster.members) == ["anna", "ben"]
    assert run(ben, monkeypatch, "begin", str(folder), "--rank", "2") == 2
    assert run(anna, monkeypatch, "remove", str(folder), "ben") == 0
    assert run(anna, monkeypatch, "remove", str(folder), "ben") == 2
    assert sorted(exchange.load_federation(folder).roster.members) == ["anna"]


def test_a_federation_without_keys_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {
        "base": "embedded",
        "base_revision": "r",
        "rank": 2,
        "alpha": 4,
        "seed": 0,
        "rule": "median",
        "clip": 0.0,
    }
    (tmp_path / "federation.json").write_text(json.dumps(old))
    for command in ("contribute", "combine", "adopt", "join"):
        assert run(Home(tmp_path / "home"), monkeypatch, command, str(tmp_path)) == 2
        assert "Begin a new one" in capsys.readouterr().err.replace("\n", " ")


def test_nobody_counts_for_more_than_agreed(tmp_path: Path) -> None:
    team = Team(tmp_path, ["anna", "liar"], most=20, rule="mean")
    team.put("anna", 0.0, ratings=20)
    team.put("liar", 1.0, ratings=99999999)
    assert team.combine().weights == (20.0, 20.0)
    # √2 · 0.5, but no longer than the median of the norms 0 and √6.
    made = load_file(team.folder / "round-0001" / "combined.safetensors")["x.lora_B.weight"]
    assert made == pytest.approx(0.5)


def test_the_combined_change_is_followed_as_far_as_agreed_and_no_further_than_one_person_went(
    tmp_path: Path,
) -> None:
    shapes = {"lora_B": (1, 2), "lora_A": (2, 1)}
    team = Team(tmp_path, ["anna", "ben"], shapes, step=1.25, rule="mean")
    people = {"anna": np.array([4.0, 0.0]), "ben": np.array([0.0, 4.0])}
    for number in (1, 2, 3):
        for name, change in people.items():
            change = change * (1000.0 if name == "ben" and number == 3 else 1.0)
            team.put(name, change.reshape(shapes[exchange.factor(number)]), ratings=9)
        team.combine()
    made = load_file(team.folder / "round-0002" / "combined.safetensors")
    assert np.allclose(made["lora_B"], [[2.5, 2.5]])
    assert np.allclose(made["lora_A"], [[2.5], [2.5]]), (
        "the rounds take turns, and what was learned before stays"
    )
    made = load_file(team.folder / "round-0003" / "combined.safetensors")
    # The median person went 2,002 far, so the mean (2, 2000) is followed no further than that.
    assert np.allclose(
        made["lora_B"], [[2.5, 2.5]] + np.array([[2.0, 2000.0]]) * min(1.25, 2002 / np.hypot(2, 2000))
    )
    assert np.allclose(made["lora_A"], [[2.5], [2.5]])


def terms_with(**changes: object) -> Terms:
    agreed: dict[str, object] = {
        "base": "embedded", "base_revision": "r", "rank": 2, "alpha": 4, "seed": 0, "shapes": SHAPES, "founder": "a" * 64,
    }  # fmt: skip
    return Terms(**(agreed | changes))  # type: ignore[arg-type]


def test_terms_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(UsageError, match="step"):
        terms_with(step=-1.0)
    with pytest.raises(UsageError, match="Krum"):
        terms_with(rule="krum", step=2.0)
    with pytest.raises(UsageError, match="Noise"):
        terms_with(rule="median", clip=1.0, noise=1.0)


def test_noise_is_paid_for_and_said(tmp_path: Path) -> None:
    names = ["anna", "ben", "carl", "dora", "emil"]
    team = Team(
        tmp_path, names, {"lora_B": (30, 30), "lora_A": (30, 30)}, rank=30, rule="mean", clip=1.0, noise=4.0
    )
    for _ in (1, 2):
        for name in names:
            team.put(name, 9.0, ratings=200)
        with pytest.raises(UsageError, match="by the founder"):
            team.combine(by="ben")
        done = team.combine()
        assert done.weights == (1.0,) * 5  # a person's share is bounded
        exchange.remove_updates(team.federation, done.round)
    said = json.loads((team.folder / "round-0002" / "combined.json").read_text())
    assert said["epsilon"] == pytest.approx(0.46, abs=0.001)  # μ = √2/4, δ = 1/50
    assert list((team.folder / "round-0002").glob("*.safetensors")) == [
        team.folder / "round-0002/combined.safetensors"
    ]
    # A clipped mean has norm 1, the noise of 4/5 a coordinate 24; together they are followed as far as a clipped person could go.
    for change in load_file(team.folder / "round-0002" / "combined.safetensors").values():
        assert np.linalg.norm(change) == pytest.approx(1.0)
        assert np.sum(change) / 30 == pytest.approx(1 / 24, abs=0.15)
        assert change.std() == pytest.approx(1 / 30, rel=0.05)


def test_terms_cannot_be_changed_under_way(tmp_path: Path) -> None:
    from clawback.extensions.federated.federation_terms import write_terms

    team = Team(tmp_path, ["anna"])
    with pytest.raises(UsageError, match="already holds other terms"):
        write_terms(team.folder, terms_with(founder=team.founder.public, most=9))
    write_terms(team.folder, team.terms)
