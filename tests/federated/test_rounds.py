"""A federation of known members: what strangers, members and odd files can and cannot do to a round."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file

from clawback.errors import NotFound, StoreError, UsageError
from clawback.extensions.federated import exchange, rounds
from clawback.extensions.federated.federation_terms import LARGEST_JSON, Roster, Terms, read_terms, terms_from
from clawback.extensions.federated.member_keys import load_signer
from tests.federated.team import SHAPES, Team, put_signed

FIVE = ["anna", "ben", "carl", "dora", "emil"]
SEVEN = [*FIVE, "mal", "max"]
HONEST = np.random.default_rng(7).normal(size=(5, 3, 2))


def team_of(root: Path, names: list[str], **terms: object) -> Team:
    root.mkdir(parents=True, exist_ok=True)
    return Team(root, names, **terms)  # type: ignore[arg-type]


def put_honest(team: Team, names: list[str] = FIVE) -> None:
    for name, value in zip(names, HONEST, strict=False):
        team.put(name, value if team.state.round % 2 == 0 else value.T)


def combined(team: Team) -> dict[str, np.ndarray]:
    number = team.state.round
    return load_file(team.folder / f"round-{number:04d}" / "combined.safetensors")


def another_shape(team: Team, name: str) -> None:
    """One tensor of another name and shape, in the file that comes first."""
    put_signed(team.federation, team.state, name, team.signers[name], {"evil.lora_B.weight": np.ones((3, 4))})


def another_rank(team: Team, name: str) -> None:
    put_signed(team.federation, team.state, name, team.signers[name], {"x.lora_B.weight": np.ones((3, 4))})


def other_factor(team: Team, name: str) -> None:
    put_signed(team.federation, team.state, name, team.signers[name], {"x.lora_A.weight": np.ones((2, 3))})


def not_a_number(team: Team, name: str) -> None:
    put_signed(
        team.federation, team.state, name, team.signers[name], {"x.lora_B.weight": np.full((3, 2), np.nan)}
    )


def signed_by_nobody(team: Team, name: str) -> None:
    path = exchange.round_folder(team.folder, 1) / f"{name}.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_file({"x.lora_B.weight": np.ones((3, 2), np.float32)}, path, {"ratings": "10", "base": "r"})


def signed_by_a_stranger(team: Team, name: str) -> None:
    put_signed(team.federation, team.state, name, team.signers["stranger"], team.change(9.0))


def signed_by_another_member(team: Team, name: str) -> None:
    put_signed(team.federation, team.state, name, team.signers["anna"], team.change(9.0))


def changed_after_signing(team: Team, name: str) -> None:
    path = team.put(name, 1.0)
    _, metadata = exchange.read_arrays(path, team.terms.shapes_of("lora_B"))
    path.write_bytes(save({"x.lora_B.weight": np.full((3, 2), 9, np.float32)}, metadata))


def pickle(team: Team, name: str) -> None:
    file_at(team, name).write_bytes(b"\x80\x04pickle")


def fifo(team: Team, name: str) -> None:
    os.mkfifo(file_at(team, name))


def link_to_a_device(team: Team, name: str) -> None:
    file_at(team, name).symlink_to("/dev/zero")


def link_to_another(team: Team, name: str) -> None:
    file_at(team, name).symlink_to(team.put("anna", HONEST[0]))


def folder(team: Team, name: str) -> None:
    file_at(team, name).mkdir()


def huge(team: Team, name: str) -> None:
    with file_at(team, name).open("wb") as file:
        file.truncate(1 << 40)


def half_precision(team: Team, name: str) -> None:
    path = team.put(name, 1.0)
    _, metadata = exchange.read_arrays(path, team.terms.shapes_of("lora_B"))
    path.write_bytes(save({"x.lora_B.weight": np.ones((3, 2), np.float16)}, metadata))


def file_at(team: Team, name: str) -> Path:
    path = exchange.round_folder(team.folder, team.state.round + 1) / f"{name}.safetensors"
    path.parent.mkdir(exist_ok=True)
    return path


ATTACKS: list[Callable[[Team, str], None]] = [
    another_shape, another_rank, other_factor, not_a_number, signed_by_nobody, signed_by_a_stranger,
    signed_by_another_member, changed_after_signing, pickle, fifo, link_to_a_device, link_to_another, folder, huge,
    half_precision,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_two_attackers_of_seven_are_refused_by_name_and_the_round_is_that_of_the_five(
    attack: Callable[[Team, str], None], tmp_path: Path
) -> None:
    five, seven = team_of(tmp_path / "five", FIVE), team_of(tmp_path / "seven", SEVEN)
    for team in (five, seven):
        put_honest(team)
    for name in ("mal", "max"):
        attack(seven, name)
    done, wanted = seven.combine(), five.combine()
    assert done.people == tuple(FIVE)
    assert [why.split(":")[0] for why in done.refused] == ["mal", "max"]
    assert done.norm == wanted.norm
    assert all(np.array_equal(value, combined(five)[name]) for name, value in combined(seven).items())


@pytest.mark.parametrize("rule", ["median", "trimmed"])
@pytest.mark.parametrize("evil", [1e6, -1e6, 3e38])
@pytest.mark.parametrize("absent", [0, 2])
def test_valid_extreme_updates_move_no_coordinate_past_the_honest_ones(
    rule: str, evil: float, absent: int, tmp_path: Path
) -> None:
    """Also where two honest members are absent: five of seven is what a round needs."""
    team = team_of(tmp_path, SEVEN, rule=rule, step=1.0)
    present = HONEST[: 5 - absent]
    put_honest(team, FIVE[: 5 - absent])
    for name in ("mal", "max"):
        team.put(name, evil, ratings=10**9)
    done = team.combine(by="mal")  # an attacker combines
    assert done.refused == ()
    made = combined(team)["x.lora_B.weight"]
    # The step may shorten the change, never lengthen it.
    low, high = np.minimum(present.min(axis=0), 0), np.maximum(present.max(axis=0), 0)
    assert ((made >= low - 1e-6) & (made <= high + 1e-6)).all()


def test_files_of_one_person_under_many_names_are_one_vote(tmp_path: Path) -> None:
    """Five files of one member outvoted the median of four honest ones."""
    team = team_of(tmp_path, FIVE)
    for name in FIVE[:4]:
        team.put(name, 0.1)
    mine = team.put("emil", 500.0)
    for name in ("emil2", "emil3", "zoe", "Emil"):
        shutil.copy(mine, mine.with_name(f"{name}.safetensors"))
        put_signed(team.federation, team.state, f"{name}x", team.signers["emil"], team.change(500.0))
    done = team.combine()
    assert done.people == tuple(FIVE)
    assert len(done.refused) == 8
    assert np.allclose(combined(team)["x.lora_B.weight"], 0.1)


def test_a_key_has_one_name() -> None:
    roster = Roster().with_member("anna", "a" * 64)
    for name, key, said in (
        ("ben", "a" * 64, "as anna"),
        ("anna", "b" * 64, "another key"),
        ("ANNA", "b" * 64, "same name"),
        ("combined", "b" * 64, "no name"),
        ("../ben", "b" * 64, "no name"),
        ("ben", "no key", "no public key"),
    ):
        with pytest.raises(UsageError, match=said):
            roster.with_member(name, key)
    assert [Roster(0, dict.fromkeys(map(str, range(n)), "k")).quorum for n in (1, 2, 3, 4, 5, 7, 10)] == [
        2,
        2,
        3,
        3,
        4,
        5,
        7,
    ]


def test_an_old_update_cannot_be_put_again(tmp_path: Path) -> None:
    team = team_of(tmp_path, FIVE)
    put_honest(team)
    kept = (exchange.round_folder(team.folder, 1) / "emil.safetensors").read_bytes()
    team.combine()
    for name in FIVE[:4]:
        team.put(name, 1.0)
    team.combine()
    for name in FIVE[:4]:
        team.put(name, 1.0)
    (exchange.round_folder(team.folder, 3) / "emil.safetensors").write_bytes(kept)
    done = team.combine()
    assert done.people == tuple(FIVE[:4])
    assert done.refused[0].startswith("emil: it was made for another round")


def test_an_update_of_another_federation_is_refused(tmp_path: Path) -> None:
    team, other = team_of(tmp_path / "one", FIVE), team_of(tmp_path / "two", FIVE, seed=1)
    other.signers, other.founder = team.signers, team.founder
    put_honest(team)
    put_signed(other.federation, other.state, "emil", team.signers["emil"], other.change(1.0))
    shutil.copy(*(exchange.round_folder(t.folder, 1) / "emil.safetensors" for t in (other, team)))
    done = team.combine()
    assert done.refused[0].startswith("emil: it was made for another")


@pytest.mark.parametrize("number", [2, 9999, 99_999_999])
def test_a_round_that_nobody_combined_stalls_nobody(number: int, tmp_path: Path) -> None:
    team = team_of(tmp_path, FIVE)
    put_honest(team)
    team.combine()
    here = exchange.round_folder(team.folder, number)
    shutil.copytree(exchange.round_folder(team.folder, 1), here)
    note = json.loads((here / "combined.json").read_text())
    (here / "combined.json").write_text(json.dumps(note | {"round": number}))
    assert team.state.round == 1
    put_honest(team)
    assert team.combine().round == 2


def test_what_the_founder_combined_cannot_be_overwritten(tmp_path: Path) -> None:
    team = team_of(tmp_path, FIVE)
    put_honest(team)
    team.combine()
    path = exchange.round_folder(team.folder, 1) / "combined.safetensors"
    right = path.read_bytes()
    path.write_bytes(save({"x.lora_B.weight": np.full((3, 2), 9, np.float32)}))
    with pytest.raises(StoreError, match="not what was signed"):
        rounds.latest(team.federation)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="put back"):
        rounds.latest(team.federation)
    path.unlink()
    path.write_bytes(right)
    assert team.state.round == 1


def test_a_members_round_counts_if_everybody_arrives_at_the_same(tmp_path: Path) -> None:
    team = team_of(tmp_path, FIVE)
    put_honest(team)
    assert team.combine(by="carl").round == 1
    assert team.state.round == 1
    put_honest(team)
    federation, state = team.federation, team.state
    # Signed by a member, and made up: it is no round, and the next combine replaces it.
    made_up = exchange.make_state(federation.digest, 2, {n: np.full(s, 7.0) for n, s in SHAPES.items()})
    updates = {name: exchange.read_update(federation, state, name)[2] for name in FIVE}
    exchange.write_combined(federation, made_up, {"updates": updates, "people": FIVE}, team.signers["ben"])
    assert team.state.round == 1
    # Signed by a stranger: the same.
    exchange.write_combined(
        federation, made_up, {"updates": updates, "people": FIVE}, team.signers["stranger"]
    )
    assert team.state.round == 1
    assert team.combine(by="dora").round == 2
    assert team.state.round == 2


def test_a_member_cannot_leave_out_most_of_the_others(tmp_path: Path) -> None:
    team = team_of(tmp_path, SEVEN)
    for name in ("anna", "ben", "mal", "max"):
        team.put(name, 1.0)
    with pytest.raises(UsageError, match="5 are wanted"):
        team.combine(by="mal")
    federation, state = team.federation, team.state
    few = {name: exchange.read_update(federation, state, name)[2] for name in ("mal", "max")}
    after = exchange.make_state(federation.digest, 1, team.change(1.0))
    exchange.write_combined(federation, after, {"updates": few}, team.signers["mal"])
    assert team.state.round == 0
    with pytest.raises(UsageError, match="only members"):
        team.combine(by="stranger")
    assert team.combine(least=2).people == ("anna", "ben", "mal", "max")  # the founder may


def test_members_who_left_take_no_round_with_them(tmp_path: Path) -> None:
    team = team_of(tmp_path, FIVE)
    put_honest(team)
    team.combine(by="ben")
    rounds.countersign(team.federation, team.state, team.founder)
    team.set_members(["anna", "carl", "dora"], number=9)
    assert team.state.round == 1
    for name in ("anna", "carl", "dora"):
        team.put(name, 1.0)
    put_signed(team.federation, team.state, "ben", team.signers["ben"], team.change(50.0))
    done = team.combine()
    assert done.people == ("anna", "carl", "dora")
    assert done.refused == ("ben: it is no member's file",)


def test_a_list_of_members_that_the_founder_did_not_sign_is_refused(tmp_path: Path) -> None:
    team = team_of(tmp_path, FIVE)
    path = team.folder / "members.json"
    said = json.loads(path.read_text())
    said["members"]["zoe"] = team.signers["stranger"].public
    path.write_text(json.dumps(said))
    with pytest.raises(UsageError, match="not signed by the founder"):
        exchange.load_federation(team.folder)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="no regular file"):
        exchange.load_federation(team.folder)
    path.unlink()
    with pytest.raises(NotFound):
        exchange.load_federation(team.folder)


# -------------------------------------------------------------------------------------------------------------- terms

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "change",
    [
        {"clip": NAN}, {"clip": INF}, {"clip": -1.0}, {"clip": "1"}, {"clip": True}, {"noise": NAN}, {"noise": INF},
        {"noise": -1.0}, {"step": NAN}, {"step": -1}, {"step": 33}, {"most": 0}, {"most": 1.5}, {"most": None},
        {"rank": 0}, {"rank": "2"}, {"rank": True}, {"seed": -1}, {"alpha": 0}, {"base": 3}, {"rule": "apart"},
        {"rule": "stack"}, {"rule": ["median"]}, {"founder": "me"}, {"founder": None}, {"shapes": {}}, {"shapes": []},
        {"shapes": {"x.lora_B": [3, 2, 1]}}, {"shapes": {"x.lora_B": [3, -2]}}, {"shapes": {"x.lora_B": "32"}},
        {"shapes": {"x.lora_B": [3, 4]}}, {"shapes": {"x": [3, 2]}}, {"shapes": {"x.lora_B": [2**31, 2]}},
        {"shapes": {"x.lora_B": [NAN, 2]}}, {"strange": 1},
    ],
    ids=str,
)  # fmt: skip
def test_terms_that_nobody_can_mean_are_refused(change: dict[str, object], tmp_path: Path) -> None:
    team = team_of(tmp_path, ["anna"])
    path = team.folder / "federation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UsageError, match="cannot be used") as said:
        read_terms(team.folder)
    assert len(str(said.value)) < 500


def test_terms_that_are_no_terms_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "federation.json"
    for content, said in (
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[]", "no JSON object"),
        (b"\xff\xfe", "cannot be used"),
        (b" " * (LARGEST_JSON + 1), "at most"),
        (b'{"base": "embedded", "base_revision": "r", "rank": 2, "alpha": 4, "seed": 0}', "earlier Clawback"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            read_terms(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="link"):
        read_terms(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="no regular file"):
        read_terms(tmp_path)


def test_terms_are_the_same_when_read_again(tmp_path: Path) -> None:
    team = team_of(tmp_path, FIVE, clip=1.5, step=2)
    found = read_terms(team.folder)
    assert found == team.terms
    assert found.digest == team.terms.digest
    plain = json.loads((team.folder / "federation.json").read_text())
    assert terms_from(plain | {"rank": 2}, team.folder).digest == found.digest
    assert terms_from(plain | {"most": 1}, team.folder).digest != found.digest
    assert isinstance(found, Terms)


def test_a_key_file_is_private_and_a_damaged_one_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    first = load_signer(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_signer(path).public == first.public
    path.write_text("no key")
    with pytest.raises(StoreError, match=r"a\.key"):
        load_signer(path)
    assert path.read_text() == "no key"
