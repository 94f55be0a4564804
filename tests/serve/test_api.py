"""The loop as HTTP calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from clawback import paths, store
from clawback.paths import Home
from clawback.records import Run, Turn
from clawback.serve import app as serving

from .conftest import Running


class Api:
    def __init__(self, url: str, home: Home) -> None:
        headers = {"authorization": f"Bearer {paths.secret(home.root / 'token')}"}
        self.client = httpx.Client(base_url=url + "/api", headers=headers, timeout=60)

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.client.post(path, json={} if body is None else body)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
def api(trained: Home, running: Callable[[Any], Running]) -> Api:
    return Api(running(serving.make(trained)).url, trained)


def test_what_there_is(api: Api) -> None:
    now = api.get("/status")
    assert (now["live"], now["turns"], now["good"] + now["bad"]) == (1, 12, 12)
    newest = api.get("/turns?limit=5")
    assert [t["id"] for t in newest] == [12, 11, 10, 9, 8]
    assert [t["id"] for t in api.get("/turns?limit=2&before=8")] == [7, 6]
    assert api.get("/turns?rated=no") == []
    for nothing in ("0", "-3", "many"):  # a look of no turns would never come to an end
        assert api.get(f"/search?limit={nothing}")["turns"]
    one = api.get("/turns/12")
    assert one["parts"][0]["kind"] == "rating"
    assert one["reward"] == one["parts"][0]["value"]
    assert [v["number"] for v in api.get("/versions")] == [1, 0]
    assert "path" not in api.get("/versions")[0]
    assert api.get("/versions")[0]["ratings"] == 11
    learned = api.get("/learning")
    assert abs(learned["versions"][1]["kl"]) < 0.1, "an estimate from few answers, after two steps"
    assert learned["run"] is None
    assert learned["runs"][0]["text"] == "done"
    curves = api.get("/runs/1")["history"]
    assert [step["step"] for step in curves] == [1, 2]
    assert {"loss", "reward", "drift"} <= curves[0].keys()
    assert api.get("/runs")[0]["ratings"] == 11
    assert api.get("/sessions")[0]["main"] == 12
    assert len(api.get("/sessions/s")["turns"]) == 12
    assert any(f["ok"] for f in api.get("/health")["findings"])
    assert api.client.get("/../metrics").status_code in (200, 404)


def test_saying_something_about_a_turn(api: Api, trained: Home) -> None:
    api.post("/turns/3/feedback", {"kind": "rate", "value": 10, "event_id": "e"})
    api.post("/turns/3/feedback", {"kind": "rate", "value": 10, "event_id": "e"})
    api.post("/turns/3/feedback", {"kind": "critique", "text": "Too long."})
    api.post("/turns/4/feedback", {"kind": "edit", "text": "As it should have been."})
    api.post("/preferences", {"better": 5, "worse": 6})
    with store.connect(trained.database) as db:
        given = [(f.turn_id, f.kind, f.value) for f in db.feedback() if f.source == "web"]
    assert given == [(3, "rating", 1.0), (3, "critique", 0.0), (4, "edit", 0.0), (5, "preference", 1.0)]
    api.post("/turns/4/feedback", {"kind": "undo"})
    assert "edit" not in [p["kind"] for p in api.get("/turns/4")["parts"]]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/turns/99/feedback", {"kind": "good"}, 404),
        ("/turns/1/feedback", {"kind": "great"}, 400),
        ("/turns/1/feedback", {"kind": "rate", "value": 11}, 400),
        ("/turns/1/feedback", {"kind": "good", "odd": 1}, 400),
        ("/turns/1/feedback", ["good"], 400),
        ("/preferences", {"better": 1, "worse": 1}, 400),
        ("/versions/7/promote", {}, 404),
        ("/rollback", {"version": 1}, 400),
        ("/pairs", {"turn": 99}, 404),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(api: Api, path: str, body: Any, status: int) -> None:
    before = api.get("/status")
    assert "\n" not in api.post(path, body, status)["error"]
    assert api.get("/status") == before


def test_back_and_forth_between_versions(api: Api) -> None:
    assert api.post("/rollback")["number"] == 0
    assert api.get("/status")["live"] == 0
    assert api.post("/versions/1/promote")["number"] == 1


def test_two_versions_side_by_side(api: Api, trained: Home) -> None:
    made = api.post("/pairs", {"turn": 1, "seed": 2})
    assert [a["version"] for a in made["answers"]] == [0, 1]
    assert api.post("/pairs", {"turn": 1, "seed": 2}) == made
    assert api.get("/status")["turns"] == 12
    twice = api.post("/pairs", {"turn": 1, "seed": 2, "versions": [0, 0]})["answers"]
    assert twice[0] == made["answers"][0]
    assert twice[1]["response"] != twice[0]["response"], "two draws of one version are two"
    kept = api.post("/pairs", {"turn": 1, "seed": 2, "keep": True, "versions": [0, 0]})["answers"]
    api.post("/preferences", {"better": kept[1]["turn"], "worse": kept[0]["turn"]})
    assert api.get(f"/turns/{kept[1]['turn']}")["reward"] > 0 > api.get(f"/turns/{kept[0]['turn']}")["reward"]


def test_metrics_can_be_scraped(api: Api) -> None:
    url = str(api.client.base_url).replace("/api/", "/metrics")
    text = api.client.get(url).text
    assert "clawback_live_version 1\n" in text
    assert 'clawback_ratings_total{sign="good"}' in text


def test_what_waits_for_a_rating_comes_with_its_steps_and_pairs(api: Api, trained: Home) -> None:
    asked = ({"role": "user", "content": "Why?"},)
    with store.connect(trained.database) as db:
        call = {"id": "1", "name": "Read", "arguments": "{}"}
        step = db.add_turn(Turn("agent", asked, "", calls=(call,))).id
        answer = db.add_turn(Turn("agent", asked, "Because.")).id
        other = db.add_turn(Turn("again", asked, "It is so.")).id
    found = {one["id"]: one for one in api.get("/inbox")}
    assert found.keys() == {answer, other}
    assert [(s["id"], s["calls"][0]["name"]) for s in found[answer]["steps"]] == [(step, "Read")]
    [pair] = api.get("/inbox/pairs")
    assert {one["turn"] for one in pair["answers"]} == {answer, other}


def test_stopping_a_run(api: Api, trained: Home) -> None:
    assert "is done already" in api.post("/runs/1/stop", status=400)["error"]
    assert "cannot be resumed" in api.post("/runs/1/resume", status=400)["error"]
    assert api.post("/runs/9/stop", status=404)
    with store.connect(trained.database) as db:
        progress = {"phase": "draw", "step": 1, "steps": 9}
        db.start_run(Run("tiny", "", "auto", {}, seed=0, parent=1, progress=progress))
    run = api.get("/status")["run"]
    assert (run["interrupted"], run["text"]) == (True, "draw 1 of 9")
    assert api.post("/runs/2/stop")["status"] == "stopped"
    assert api.get("/status")["run"] is None
