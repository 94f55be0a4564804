"""One server for many people: each sees their own home alone and is answered by their own adapter, whoever is answered beside them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks._people_adapters import live_with, write_adapters
from clawback import config, engine, store
from clawback.extensions.people.everyone import Everyone
from clawback.extensions.people.fair import FairQueue
from clawback.extensions.people.homes import PersonHomes

NAMES = [f"person-{number}" for number in range(6)]


class House:
    def __init__(self, people: PersonHomes, tokens: dict[str, str], url: str, app: Everyone) -> None:
        self.people, self.tokens, self.url, self.app = people, tokens, url, app

    def ask(self, name: str, path: str = "/v1/chat/completions", **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.tokens[name]}"}
        if path.startswith("/v1/chat"):
            body = {
                "messages": [{"role": "user", "content": "What is a river?"}],
                "max_tokens": 8,
                "temperature": 0,
            }
            return httpx.post(self.url + path, json=body | more, headers=headers, timeout=240)
        if more:
            return httpx.post(self.url + path, json=more, headers=headers, timeout=240)
        return httpx.get(self.url + path, headers=headers, timeout=240)

    def said(self, name: str) -> str:
        answer = self.ask(name)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[PersonHomes, dict[str, str]]:
    """The last of them has no version yet."""
    people = PersonHomes(tmp_path_factory.mktemp("house"))
    # As many at once as the test below has workers: while somebody's adapter is fetched, all of them may wait for that person's answers.
    limits = {"adapters": 2, "open": 3, "runs": 0, "at_once": 12}
    config.save(people.house.config, {"people": limits, "training": {"threshold": 2}})
    tokens = {name: people.add(name) for name in NAMES}
    policy = engine.load("embedded")
    folders = write_adapters(policy, people.root / "made", len(NAMES) - 1, strength=0.4)
    for name, folder in zip(NAMES, folders, strict=False):
        live_with(people.home(name), folder, policy.info)
    return people, tokens


@pytest.fixture
def house(people: tuple[PersonHomes, dict[str, str]], running: Callable[[Any], Any]) -> House:
    app = Everyone(people[0])
    return House(*people, running(app).url, app)


def test_nobody_is_answered_by_anothers_adapter_or_sees_anothers_turns(house: House) -> None:
    alone = {name: house.said(name) for name in NAMES}
    assert len(set(alone.values())) == len(NAMES), "the adapters of this test say the same"
    asked = [NAMES[number * 5 % 6] for number in range(48)]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(house.said, asked)) == [alone[name] for name in asked]
    assert len(house.app.opened) <= 3 + 12
    for name in NAMES:
        turns = house.ask(name, "/api/turns?limit=100").json()
        assert len(turns) == 1 + 8
        assert {turn["response"] for turn in turns} == {alone[name]}
        with store.connect(house.people.home(name).database) as db:
            assert {turn.response for turn in db.turns(limit=-1)} == {alone[name]}


def test_whatever_is_asked_for_is_ones_own(house: House) -> None:
    """Every address of the API, with the numbers of somebody else's turns, versions and runs."""
    mark, session = "xylophone", "the-session-of-person-0"
    headers = {"authorization": f"Bearer {house.tokens['person-0']}", "x-session-id": session}
    asked = {"messages": [{"role": "user", "content": mark}], "max_tokens": 4}
    for _ in range(12):  # so that the number is nobody else's
        httpx.post(house.url + "/v1/chat/completions", json=asked, headers=headers, timeout=240)
    with store.connect(house.people.home("person-0").database) as db:
        number = db.turns(limit=1)[0].id
    with store.connect(house.people.home("person-1").database) as db:
        assert number > max((turn.id for turn in db.turns(limit=-1)), default=0)
    given = house.ask("person-0", f"/api/turns/{number}/feedback", kind="critique", text=mark)
    assert given.status_code == 200, given.text

    paths = house.ask("person-1", "/api/openapi.json").json()["paths"]
    read = [path for path, how in paths.items() if "get" in how]
    assert len(read) > 15

    def shown(name: str) -> set[str]:
        there = [path.replace("{id}", str(number)).replace("{name}", session) for path in read]
        there += ["/metrics", f"/api/search?q={mark}"]
        return {path for path in there if mark in house.ask(name, path).text}

    own = shown("person-0")
    assert {"/api/turns", f"/api/turns/{number}", f"/api/sessions/{session}"} <= own
    for name in ("person-1", "person-5"):
        assert shown(name) == set(), name
        tried = house.ask(name, f"/api/turns/{number}/feedback", kind="bad")
        assert tried.status_code == 404, tried.text
        pair = house.ask(name, "/api/preferences", better=number, worse=number - 1)
        assert pair.status_code == 404, pair.text
        for version in (1, 2):
            assert house.ask(name, f"/api/versions/{version + 1}/promote", x=1).status_code >= 400
    with store.connect(house.people.home("person-0").database) as db:
        assert [f.kind for f in db.feedback(turn_id=number)] == ["critique"]


def test_a_new_token_is_good_at_once_and_the_old_one_no_longer(house: House) -> None:
    house.said("person-2")
    old = house.tokens["person-2"]
    new = house.tokens["person-2"] = house.people.renew("person-2")
    for path in ("/api/turns", "/v1/models", "/metrics"):
        assert house.ask("person-2", path).status_code == 200, path
        for wrong in (old, f"person-1.{new.partition('.')[2]}"):
            headers = {"authorization": f"Bearer {wrong}"}
            assert httpx.get(house.url + path, headers=headers, timeout=60).status_code == 401, path


def test_a_token_of_hooks_opens_no_model(house: House) -> None:
    hook = (house.people.home("person-3").root / "hook-token").read_text().strip()
    for path in ("/v1/models", "/api/turns", "/metrics"):
        headers = {"authorization": f"Bearer {hook}"}
        assert httpx.get(house.url + path, headers=headers, timeout=60).status_code == 401, path


def test_without_a_token_there_is_the_page_and_nothing_else(house: House) -> None:
    assert httpx.get(house.url + "/", timeout=60).status_code == 200
    for path in ("/api/status", "/v1/models", "/metrics", "/api/hooks/claude-code", "/api/hooks/proof"):
        assert httpx.get(house.url + path, timeout=60).status_code == 401, path
        wrong = {"x-api-key": house.tokens["person-0"] + "x"}
        assert httpx.get(house.url + path, headers=wrong, timeout=60).status_code == 401, path
    other = {"authorization": f"Bearer {house.tokens['person-0']}", "host": "evil.example"}
    assert httpx.get(house.url + "/api/status", headers=other, timeout=60).status_code == 421


def test_a_persons_rater_rates_what_is_assigned_there_and_reaches_nothing_else(house: House) -> None:
    home = house.people.home("person-0")
    house.said("person-0")
    with store.connect(home.database) as db:
        bare = db.invite("anna", "rater", again=True)
        turn = db.turns(limit=1)[0].id
        db.assign([("anna", turn)])
    house.tokens["anna"] = f"person-0.{bare}"
    assert [one["id"] for one in house.ask("anna", "/api/assigned").json()] == [turn]
    given = house.ask("anna", f"/api/turns/{turn}/feedback", kind="good")
    assert given.status_code == 200, given.text
    with store.connect(home.database) as db:
        assert [f.source for f in db.feedback(turn_id=turn)] == ["rater:anna"]
    assert house.ask("anna", "/api/status").status_code == 403, "how it goes is not for raters"
    for path in ("/v1/chat/completions", "/v1/models", "/metrics"):
        assert house.ask("anna", path).status_code == 403, path
    for other in (bare, f"person-1.{bare}", f"nobody.{bare}", f"person-0.{bare[:-1]}x"):
        house.tokens["anna"] = other
        assert house.ask("anna", "/api/assigned").status_code == 401, other


def test_who_uses_more_than_their_share_is_told_so(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    def limit(**to: int) -> None:
        monkeypatch.setattr(house.app, "limits", msgspec.structs.replace(house.app.limits, **to))

    limit(at_once=1)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: house.ask("person-5", max_tokens=40), range(8)))
    codes = {answer.status_code for answer in found}
    assert codes == {200, 429}
    assert "wait for one" in next(a.text for a in found if a.status_code == 429)
    limit(at_once=4, tokens_a_day=1)
    refused = house.ask("person-5")
    assert refused.status_code == 429
    assert "used up" in refused.text
    assert house.ask("person-5", "/api/status").status_code == 200


def test_enough_ratings_put_somebody_in_the_queue_and_start_nothing_by_themselves(house: House) -> None:
    house.said("person-1")
    turns = house.ask("person-1", "/api/turns").json()
    for turn in (turns * 2)[:3]:
        given = house.ask("person-1", f"/api/turns/{turn['id']}/feedback", kind="good")
        assert given.json()["training_started"] is False
    waiting = FairQueue(Path(house.people.root) / "training")
    assert waiting.waits("person-1") == (len(turns) > 1)
    assert house.ask("person-2", "/api/train", x=1).json() == {"started": False, "waits": True}
    assert not waiting.waits("person-2"), "nothing is due"


def test_a_home_of_another_model_is_not_answered_for(house: House) -> None:
    token = house.people.add("stranger")
    house.tokens["stranger"] = token
    config.save(house.people.home("stranger").config, {"model": {"base": "other/model"}})
    answer = house.ask("stranger")
    assert answer.status_code == 503
    assert "other/model" in answer.text
