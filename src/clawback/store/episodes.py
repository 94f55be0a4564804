"""Episodes: attempts at an environment's tasks, stored when they end."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from clawback.errors import NotFound
from clawback.store.connection import sqlite3
from clawback.store.database import now, readable
from clawback.store.picture_table import PictureTable, put_back, shows_pictures, taken_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clawback.records import Branch, Episode

_MANY = 500
"""Values in one statement."""


class EpisodeTable(PictureTable):
    def add_episodes(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Store episodes that are over, all in one transaction, and return them with their ids. One whose run has its number already stays as it was."""
        with self._write() as db:
            return [self._add(db, episode) for episode in episodes]

    def _add(self, db: sqlite3.Connection, episode: Episode) -> Episode:
        from dataclasses import asdict, replace  # brings `inspect` along, which every hook would wait for

        bare, shown = taken_out(episode.messages)
        messages = [dict(m) for m in bare]
        cleaned = self.clean(messages)
        # Where a secret was in what was said, it is in the tokens, too.
        branches = episode.branches if cleaned == messages else ()
        places = _places(shown)
        number = db.execute(
            "INSERT INTO episodes (run_id, number, environment, task, seed, split, together, status, stop_reason, total, unparsable, messages, steps,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id, number) DO NOTHING",
            (
                episode.run_id,
                episode.number,
                episode.environment,
                episode.task,
                episode.seed,
                episode.split,
                episode.group,
                episode.status,
                self.clean(episode.stop_reason),
                episode.total,
                episode.unparsable,
                json.dumps(cleaned, ensure_ascii=False),
                json.dumps([asdict(step) for step in episode.steps]),
                episode.created_at or now(),
            ),
        )
        if number.rowcount == 0:
            [row] = self._read(
                "SELECT * FROM episodes WHERE run_id IS ? AND number = ?", episode.run_id, episode.number
            )
            return self._episode(row)
        self._link_pictures(db, "episode", number.lastrowid or 0, shown)
        db.executemany(
            "INSERT INTO episode_branches (episode_id, place, ids, mask, logprobs, pictures) VALUES (?, ?, ?, ?, ?, ?)",
            [(number.lastrowid, place, *_packed(one, places)) for place, one in enumerate(branches)],
        )
        return replace(episode, id=number.lastrowid or 0)

    def set_rewards(self, episodes: Sequence[Episode]) -> None:
        """The rewards of a run's episodes that came after they had been stored."""
        from dataclasses import asdict

        with self._write() as db:
            db.executemany(
                "UPDATE episodes SET steps = ?, total = ? WHERE run_id = ? AND number = ?",
                [
                    (json.dumps([asdict(step) for step in e.steps]), e.total, e.run_id, e.number)
                    for e in episodes
                ],
            )

    def episode(self, number: int) -> Episode:
        """By its id. Raises ``NotFound``."""
        rows = self._read("SELECT * FROM episodes WHERE id = ?", number)
        if not rows:
            raise NotFound(f"There is no episode {number}. `clawback env episodes list` lists them.")
        return self._episode(rows[0])

    def episodes(
        self,
        limit: int = 20,
        *,
        run: int | None = None,
        environment: str | None = None,
        status: str | None = None,
        split: str | None = None,
    ) -> list[Episode]:
        """Newest first, without their tokens, and with marks in place of their pictures."""
        where, values = ["1"], []
        for column, value in (
            ("run_id", run), ("environment", environment), ("status", status), ("split", split)
        ):  # fmt: skip
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        sql = f"SELECT * FROM episodes WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?"
        return [self._episode(row, tokens=False) for row in self._read(sql, *values, limit)]

    def played(self, run: int, numbers: Collection[int]) -> dict[int, Episode]:
        """Those of a run's episodes with these numbers that are over and whole: with all that they read and wrote, pictures too."""
        found: dict[int, Episode] = {}
        wanted = sorted(numbers)
        for start in range(0, len(wanted), _MANY):
            some = wanted[start : start + _MANY]
            marks = ", ".join("?" * len(some))
            rows = self._read(f"SELECT * FROM episodes WHERE run_id = ? AND number IN ({marks})", run, *some)
            made = (self._episode(row) for row in rows)
            found |= {e.number: e for e in made if e.branches or e.status == "failed"}
        return found

    def count_episodes(self, run: int | None = None) -> dict[str, int]:
        """How many there are, by status."""
        where, values = ("", ()) if run is None else ("WHERE run_id = ?", (run,))
        rows = self._read(f"SELECT status, count(*) AS n FROM episodes {where} GROUP BY status", *values)
        return {row["status"]: row["n"] for row in rows}

    @readable
    def _episode(self, row: sqlite3.Row, tokens: bool = True) -> Episode:
        from clawback.records import Episode, EpisodeStep

        branches: list[Branch] = []
        messages = json.loads(row["messages"])
        seeing = shows_pictures(row["messages"])
        parts = self._pictures_of("episode", [row["id"]]).get(row["id"], {}) if seeing and tokens else {}
        if tokens:
            hashes = _hashes(parts)
            sql = "SELECT * FROM episode_branches WHERE episode_id = ? ORDER BY place"
            found = [_branch(one, hashes) for one in self._read(sql, row["id"])]
            # Without a picture that it read, a sequence says nothing: the episode counts as one without tokens.
            branches = [one for one in found if one] if all(found) else []
        return Episode(
            environment=row["environment"],
            task=row["task"],
            seed=row["seed"],
            messages=tuple(put_back(messages, parts) if seeing else messages),
            branches=tuple(branches),
            steps=tuple(EpisodeStep(**step) for step in json.loads(row["steps"])),
            status=row["status"],
            stop_reason=row["stop_reason"],
            number=row["number"],
            group=row["together"],
            split=row["split"],
            id=row["id"],
            run_id=row["run_id"],
            created_at=row["created_at"],
        )


def _places(shown: Sequence[bytes]) -> dict[str, int]:
    """SHA-256 of each picture → its number in the episode."""
    from hashlib import sha256

    return {sha256(data).hexdigest(): place for place, data in enumerate(shown)}


def _hashes(parts: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Number in the episode → SHA-256 of the picture."""
    if not parts:
        return {}
    from clawback.pictures import data_of

    numbers = list(parts)
    found = _places([data_of(parts[number]) or b"" for number in numbers])
    return {numbers[place]: digest for digest, place in found.items()}


def _packed(branch: Branch, places: Mapping[str, int]) -> tuple[bytes, bytes, bytes, bytes]:
    return (
        array("i", branch.ids).tobytes(),
        bytes(branch.mask),
        array("f", branch.logprobs).tobytes(),
        array("i", [places[one] for one in branch.pictures]).tobytes(),
    )


def _branch(row: Any, hashes: Mapping[int, str]) -> Branch | None:
    """None where a picture of it is gone."""
    from clawback.records import Branch

    numbers = memoryview(row["pictures"]).cast("i")
    if any(number not in hashes for number in numbers):
        return None
    return Branch(
        tuple(memoryview(row["ids"]).cast("i")),
        tuple(map(bool, row["mask"])),
        tuple(memoryview(row["logprobs"]).cast("f")),
        tuple(hashes[number] for number in numbers),
    )
