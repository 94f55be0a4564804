"""Training runs and exactly what went into each; and episodes, the attempts at an environment's tasks, stored when they end."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clawback.errors import Busy, NotFound
from clawback.processes import identity, is_alive
from clawback.store.connection import sqlite3
from clawback.store.database import Base, now, readable
from clawback.store.picture_table import PictureTable, put_back, shows_pictures, taken_out

if TYPE_CHECKING:
    from clawback.records import Branch, Episode, JsonObject, Run


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
        if shown:
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
        episodes: dict[int, Episode] = {}
        wanted = sorted(numbers)
        for start in range(0, len(wanted), _MANY):
            some = wanted[start : start + _MANY]
            marks = ", ".join("?" * len(some))
            rows = self._read(f"SELECT * FROM episodes WHERE run_id = ? AND number IN ({marks})", run, *some)
            candidates = (self._episode(row) for row in rows)
            episodes |= {e.number: e for e in candidates if e.branches or e.status == "failed"}
        return episodes

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
            read_branches = [_branch(one, hashes) for one in self._read(sql, row["id"])]
            # Without a picture that it read, a sequence says nothing: the episode counts as one without tokens.
            branches = [one for one in read_branches if one] if all(read_branches) else []
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
    places = _places([data_of(parts[number]) or b"" for number in numbers])
    return {numbers[place]: digest for digest, place in places.items()}


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


_UPDATABLE = {
    "status",
    "finished_at",
    "pid",
    "progress",
    "version",
    "error",
    "algorithm",
    "recipe",
    "stop_at",
}


ENDED_EARLY = "its process ended while the run was being prepared; `clawback train` starts another one"


class Runs(Base):
    def prepare_run(self, run: Run) -> Run:
        """Enter a run that has no inputs yet. Until ``begin_run`` it counts as failed without an end, so a process that dies leaves nothing to mend."""
        with self._write() as db:
            return self.run(self._enter(db, run, "failed"))

    def begin_run(self, number: int, run: Run) -> Run:
        """Start a prepared run with its inputs. Raises ``Busy`` while another run is entered as running."""
        with self._write() as db:
            if active := self.active_run():
                raise Busy(f"Run {active.id} is training already. `clawback status` shows how far it is.")
            db.execute(
                "UPDATE runs SET status = 'running', base = ?, base_revision = ?, algorithm = ?, recipe = ?, seed = ?, parent = ?,"
                " created_at = ?, finished_at = NULL, pid = ?, process = ?, progress = ?, error = '' WHERE id = ?",
                (*_columns(run), number),
            )
            self._enter_feedback(db, number, run)
            return self.run(number)

    def drop_preparation(self, number: int) -> None:
        """Remove a run that was refused before it began; any other run stays."""
        with self._write() as db:
            db.execute(
                "DELETE FROM runs WHERE id = ? AND status = 'failed' AND finished_at IS NULL", (number,)
            )

    def end_preparation(self, number: int, why: str) -> None:
        """Close a run that did not begin as failed, with a sentence; any other run stays as it is."""
        with self._write() as db:
            db.execute(
                "UPDATE runs SET error = ?, finished_at = ? WHERE id = ? AND status = 'failed' AND finished_at IS NULL",
                (why, now(), number),
            )

    def start_run(self, run: Run) -> Run:
        """Store a run with the feedback it trains on and holds out. Raises ``Busy`` while another is entered as running."""
        with self._write() as db:
            if active := self.active_run():
                raise Busy(f"Run {active.id} is training already. `clawback status` shows how far it is.")
            number = self._enter(db, run)
            return self.run(number)

    def add_ended_run(self, run: Run) -> Run:
        """A run that was made elsewhere and is over (a search for a prompt), with the feedback that it learned from: it never waits for,
        and never holds up, a run that trains."""
        with self._write() as db:
            number = self._enter(db, run, "done")
            db.execute("UPDATE runs SET finished_at = ? WHERE id = ?", (now(), number))
            return self.run(number)

    def _enter(self, db: sqlite3.Connection, run: Run, status: str = "running") -> int:
        number = db.execute(
            "INSERT INTO runs (status, base, base_revision, algorithm, recipe, seed, parent, created_at, pid, process, progress, kind)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (status, *_columns(run), run.kind),
        ).lastrowid
        assert number is not None
        self._enter_feedback(db, number, run)
        return number

    def _enter_feedback(self, db: sqlite3.Connection, number: int, run: Run) -> None:
        for split, ids in (("train", run.train_ids), ("held_out", run.held_out_ids)):
            db.executemany("INSERT INTO run_feedback VALUES (?, ?, ?)", [(number, i, split) for i in ids])

    def update_run(self, number: int, **fields: Any) -> None:
        """Change fields of a run (``progress={"phase": …}``, ``status="done"``, …). An ending is given its time."""
        if unknown := set(fields) - _UPDATABLE:
            raise ValueError(f"a run has no changeable {', '.join(sorted(unknown))}")
        if fields.get("status", "running") != "running":
            fields.setdefault("finished_at", now())
        if "pid" in fields:
            fields["process"] = identity(fields["pid"])
        values = [json.dumps(dict(v)) if k in ("progress", "recipe") else v for k, v in fields.items()]
        with self._write() as db:
            db.execute(
                f"UPDATE runs SET {', '.join(f'{k} = ?' for k in fields)} WHERE id = ?", (*values, number)
            )

    def run(self, number: int) -> Run:
        """Raises ``NotFound``."""
        rows = self._read("SELECT * FROM runs WHERE id = ?", number)
        if not rows:
            raise NotFound(f"There is no run {number}. `clawback runs` lists them.")
        return self._run(rows[0])

    def runs(self, limit: int = 20, *, ids: bool = True) -> list[Run]:
        """Newest first; without ``ids`` it is left out which feedback they used: thousands of rows each."""
        rows = self._read("SELECT * FROM runs ORDER BY id DESC LIMIT ?", limit)
        return [self._run(row, ids) for row in rows]

    def count_learned(self, runs: Iterable[int]) -> dict[int, int]:
        """Run → how many pieces of feedback it learned from."""
        rows = self._read(
            "SELECT j.value AS run, (SELECT count(*) FROM run_feedback rf WHERE rf.run_id = j.value AND rf.split = 'train') AS n"
            " FROM json_each(?) j",
            json.dumps(list(runs)),
        )
        return {int(row["run"]): int(row["n"]) for row in rows}

    def count_new_feedback(self, run: int) -> int:
        """How many pieces of feedback a run used that no run before it had."""
        rows = self._read(
            "SELECT count(*) FROM run_feedback a WHERE a.run_id = ?1 AND NOT EXISTS"
            " (SELECT 1 FROM run_feedback b WHERE b.feedback_id = a.feedback_id AND b.run_id < ?1)",
            run,
        )
        return int(rows[0][0])

    def active_run(self) -> Run | None:
        """The run in progress (or that was, when its process died)."""
        rows = self._read("SELECT * FROM runs WHERE status = 'running'")
        return self._run(rows[0]) if rows else None

    def current_run(self) -> Run | None:
        """The run in progress, or the newest that a live process prepares."""
        if active := self.active_run():
            return active
        rows = self._read(
            "SELECT * FROM runs WHERE status = 'failed' AND finished_at IS NULL ORDER BY id DESC LIMIT 3"
        )
        return next((run for run in map(self._run, rows) if run.status == "preparing"), None)

    def add_steps(self, number: int, steps: Iterable[tuple[str, int, Mapping[str, float]]]) -> None:
        """Keep the figures of steps: (phase, step, figures). A step that is done again after an interruption replaces the first."""
        with self._write() as db:
            db.executemany(
                "INSERT OR REPLACE INTO run_steps (run_id, phase, step, figures) VALUES (?, ?, ?, ?)",
                [(number, phase, step, json.dumps(dict(figures))) for phase, step, figures in steps],
            )

    def steps(self, number: int) -> list[JsonObject]:
        """The figures of a run's steps in the order in which they were made: ``{"phase", "step", "loss", "reward", …}``."""
        rows = self._read("SELECT phase, step, figures FROM run_steps WHERE run_id = ? ORDER BY id", number)
        return [{"phase": r["phase"], "step": r["step"], **json.loads(r["figures"])} for r in rows]

    def stop_wanted(self, number: int) -> bool:
        """Whether somebody has asked this run to stop."""
        rows = self._read("SELECT stop_at FROM runs WHERE id = ?", number)
        return bool(rows) and rows[0]["stop_at"] is not None

    def splits(self, turns: Iterable[int]) -> dict[int, str]:
        """Where each of these turns was in runs that ended: ``{turn id: "train" or "held_out"}``. Trained on once outweighs."""
        rows = self._read(
            "SELECT f.turn_id AS turn, max(rf.split) AS split FROM json_each(?) j CROSS JOIN feedback f ON f.turn_id = j.value"
            " CROSS JOIN run_feedback rf ON rf.feedback_id = f.id CROSS JOIN runs r ON r.id = rf.run_id"
            " WHERE r.status IN ('done', 'stopped') GROUP BY f.turn_id",
            json.dumps(sorted(set(turns))),
        )
        return {row["turn"]: row["split"] for row in rows}  # "train" > "held_out" in the alphabet too

    def learned_turns(self) -> set[int]:
        """Turns whose feedback some run has learned from, whatever became of the run."""
        rows = self._read(
            "SELECT DISTINCT f.turn_id, f.other_turn_id FROM run_feedback rf CROSS JOIN feedback f ON f.id = rf.feedback_id"
            " WHERE rf.split = 'train'"
        )
        return {int(turn) for row in rows for turn in row if turn is not None}

    @readable
    def _run(self, row: sqlite3.Row, ids: bool = True) -> Run:
        sql = "SELECT feedback_id, split FROM run_feedback WHERE run_id = ? ORDER BY feedback_id"
        used = self._read(sql, row["id"]) if ids else []
        from clawback.records import Run  # hooks that make none need not load it

        status, error, finished = row["status"], row["error"], row["finished_at"]
        if status == "failed" and finished is None:
            alive = is_alive(row["pid"], row["process"])
            status = "preparing" if alive else status
            error, finished = ("", None) if alive else (error or ENDED_EARLY, row["created_at"])
        return Run(
            id=row["id"],
            status=status,
            base=row["base"],
            base_revision=row["base_revision"],
            algorithm=row["algorithm"],
            recipe=json.loads(row["recipe"]),
            seed=row["seed"],
            parent=row["parent"],
            train_ids=tuple(r["feedback_id"] for r in used if r["split"] == "train"),
            held_out_ids=tuple(r["feedback_id"] for r in used if r["split"] == "held_out"),
            created_at=row["created_at"],
            finished_at=finished,
            pid=row["pid"],
            interrupted=row["status"] == "running" and not is_alive(row["pid"], row["process"]),
            progress=json.loads(row["progress"]),
            version=row["version"],
            error=error,
            stop_at=row["stop_at"],
            kind=row["kind"],
        )


def _columns(run: Run) -> tuple[Any, ...]:
    """From ``base`` to ``progress``, as they are stored."""
    return (
        run.base,
        run.base_revision,
        run.algorithm,
        json.dumps(dict(run.recipe)),
        run.seed,
        run.parent,
        run.created_at or now(),
        run.pid,
        identity(run.pid),
        json.dumps(dict(run.progress)),
    )
