"""Export of rated turns to Argilla and Label Studio, and import of the annotations made there.

Both use the tool's own documented JSON format: Argilla's is a list of records as ``Record.to_dict`` writes
them (fields, metadata, responses by question and user), Label Studio's a list of tasks (data, annotations,
results by control tag). There are three questions: ``score`` from 1 to 10, ``edit`` (how the answer should
read), ``remark`` (what was wrong).

**Sources.** Argilla identifies people by UUIDs: ours are derived from the source's name, so that they map
back to it. A Label Studio result carries the person in its ``meta.text``; annotations made there lack it, and
their ``completed_by`` names the annotator. An annotator who is not known here becomes ``argilla:UUID`` or
``label-studio:WHO``, a person of their own. The source of all of it is the tool: words in a file are not what the owner typed here.

**Annotators are blind**, as raters are here: the export names neither the version that answered nor who said
what. A score has ten steps, so a rating in between comes back as the nearest of them, and then does not count
as new.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from clawback.errors import NotFound, UsageError
from clawback.extensions.data_sets.entries import BadLine, digest
from clawback.extensions.importers.export import oldest_first
from clawback.extensions.importers.storing import ImportReport, add
from clawback.feedback.give import scored
from clawback.files import replace as write
from clawback.records import Feedback, JsonObject, Turn, person_of, text_of
from clawback.redact import redact

if TYPE_CHECKING:
    from clawback.store import Store

Tool = Literal["argilla", "label-studio"]
QUESTIONS = {"rating": "score", "edit": "edit", "critique": "remark"}
"""Kind of feedback → question."""
KINDS = {question: kind for kind, question in QUESTIONS.items()}
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/clawback-ai/clawback/raters")
MARK = "clawback-turn-"
LABEL_CONFIG = """<View>
  <Header value="Before"/>
  <Text name="before" value="$before"/>
  <Header value="Question"/>
  <Text name="prompt" value="$prompt"/>
  <Header value="Answer"/>
  <Text name="response" value="$response"/>
  <Rating name="score" toName="response" maxRating="10" required="true"/>
  <TextArea name="edit" toName="response" placeholder="How it should read" maxSubmissions="1"/>
  <TextArea name="remark" toName="response" placeholder="What was wrong" maxSubmissions="1"/>
</View>
"""
"""The labelling configuration of a project that takes these tasks."""
MOST_BYTES = 500_000_000


class AnnotatorOpinion(NamedTuple):
    """One answer to one question."""

    source: str
    kind: Literal["rating", "edit", "critique"]
    score: int
    text: str


def export(store: Store, path: Path, tool: Tool, *, everything: bool = False, blind: bool = False) -> int:
    """Write rated turns (``everything``: all that can be rated) and return how many. ``blind``: without what anybody said of them."""
    records = []
    for turn in oldest_first(store):
        opinions = list(_newest(store.feedback(turn_id=turn.id), turn.id))
        if turn.kind == "main" and turn.response and (opinions or everything):
            records.append((_record if tool == "argilla" else _task)(turn, [] if blind else opinions))
    write(path, json.dumps(records, ensure_ascii=False, indent=1).encode(), mode=0o600)
    return len(records)


def import_file(store: Store, path: Path, tool: Tool) -> ImportReport:
    """Import annotations; turns of this home are matched by number and answer, others are added as new ones.

    Raises ``NotFound`` and ``UsageError`` for a file that does not exist, or is not an export of the tool.
    """
    report = ImportReport()
    known = _sources(store)
    for number, one in enumerate(_read(path), 1):
        try:
            turn, opinions = (_from_record if tool == "argilla" else _from_task)(store, one, known)
            stored, new = (turn, False) if turn.id else add(store, turn)
        except BadLine as error:
            report.problems.append(f"{'record' if tool == 'argilla' else 'task'} {number}: {error}")
            continue
        report.turns += new
        report.known += not new
        report.feedback += sum(_keep(store, stored, each, tool) for each in opinions)
    return report


def is_ours(record: JsonObject, tool: Tool) -> bool:
    """Whether a record or task comes from our own export."""
    data = record.get("data")
    name = record.get("id") if tool == "argilla" else data.get("clawback") if isinstance(data, dict) else None
    return isinstance(name, str) and name.startswith(MARK)


def user_id(source: str) -> str:
    """The UUID that stands for a source in Argilla."""
    return str(uuid.uuid5(NAMESPACE, source))


# ----------------------------------------------------------------------------------------------------------- out


def _newest(opinions: Iterable[Feedback], turn: int) -> Iterator[AnnotatorOpinion]:
    """Of each person and question what was said last."""
    about = (f for f in opinions if f.kind in QUESTIONS and f.turn_id == turn)
    newest = {(f.author, f.kind): f for f in sorted(about, key=lambda f: f.moment)}
    for (person, kind), f in sorted(newest.items()):
        assert kind in ("rating", "edit", "critique")
        yield AnnotatorOpinion(person, kind, _score(f.value) if kind == "rating" else 0, f.text)


def _score(value: float) -> int:
    """[-1, 1] → 1 to 10."""
    return round((9 * value + 11) / 2)


def _fields(turn: Turn) -> dict[str, str]:
    before = [f"{m.get('role')}: {text_of(m.get('content'))}" for m in turn.messages[:-1]]
    return {"prompt": turn.prompt or "(none)", "response": turn.response, "before": "\n\n".join(before) or "(nothing)"}  # fmt: skip


def _record(turn: Turn, remarks: Iterable[AnnotatorOpinion]) -> JsonObject:
    responses: dict[str, list[JsonObject]] = {}
    for one in remarks:
        value: int | str = one.score if one.kind == "rating" else one.text
        responses.setdefault(QUESTIONS[one.kind], []).append({"value": value, "user_id": user_id(one.source)})
    return {
        "id": f"{MARK}{turn.id}",
        "fields": _fields(turn),
        "metadata": {"agent": turn.agent},
        "suggestions": {},
        "responses": responses,
        "vectors": {},
        "status": "completed" if responses else "pending",
    }


def _task(turn: Turn, remarks: Iterable[AnnotatorOpinion]) -> JsonObject:
    by_source: dict[str, list[JsonObject]] = {}
    for one in remarks:
        name = QUESTIONS[one.kind]
        value = {"rating": one.score} if one.kind == "rating" else {"text": [one.text]}
        by_source.setdefault(one.source, []).append(
            {"id": f"{name}-{turn.id}", "from_name": name, "to_name": "response", "meta": {"text": [one.source]},
             "type": "rating" if one.kind == "rating" else "textarea", "value": value}
        )  # fmt: skip
    return {
        "id": turn.id,
        "data": _fields(turn) | {"clawback": f"{MARK}{turn.id}"},
        "annotations": [{"result": results, "was_cancelled": False} for results in by_source.values()],
        "predictions": [],
    }


# ------------------------------------------------------------------------------------------------------------ in


def _read(path: Path) -> list[JsonObject]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES // 10**6} MB.")
        records = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON that can be read: {error}.") from error
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise UsageError(f"{path} holds no list of records or tasks.")
    return records


def _sources(store: Store) -> set[str]:
    return {name for f in store.feedback(active=False) for name in (f.author, f.source)} | {
        i.source for i in store.invited(removed=True)
    }


def _turn(store: Store, name: object, fields: object) -> Turn:
    if not isinstance(fields, dict) or not all(isinstance(fields.get(k), str) for k in ("prompt", "response")):  # fmt: skip
        raise BadLine("`prompt` or `response` is missing")
    prompt, response = fields["prompt"], fields["response"]
    if isinstance(name, str) and (number := name.removeprefix(MARK)) != name and number.isdecimal():
        try:
            turn = store.turn(int(number))
        except NotFound:
            turn = None
        if turn is not None and turn.response == response:
            return turn
    if not response.strip() or not prompt.strip():
        raise BadLine("`prompt` or `response` is empty")
    if fields.get("before") not in (None, "", "(nothing)"):
        raise BadLine("it belongs to a conversation that this home does not have")
    messages = ({"role": "user", "content": redact(prompt)},)
    return Turn("import", messages, redact(response), agent="import", event_id=f"import:{digest(messages, response, 'import')}")  # fmt: skip


def _from_record(store: Store, record: JsonObject, known: set[str]) -> tuple[Turn, list[AnnotatorOpinion]]:
    turn = _turn(store, record.get("id"), record.get("fields"))
    people = {user_id(source): person_of(source) for source in known}
    opinions = []
    for question, answers in (record.get("responses") or {}).items():
        for answer in answers if isinstance(answers, list) else []:
            who = str(answer.get("user_id", "")) if isinstance(answer, dict) else ""
            source = people.get(who, f"argilla:{who}")
            if question in KINDS:
                opinions.append(_remark(source, question, answer.get("value")))
    return turn, opinions


def _from_task(store: Store, record: JsonObject, known: set[str]) -> tuple[Turn, list[AnnotatorOpinion]]:
    data = record.get("data")
    turn = _turn(store, data.get("clawback") if isinstance(data, dict) else None, data)
    opinions = []
    for annotation in record.get("annotations") or []:
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            continue
        for result in annotation.get("result") or []:
            if isinstance(result, dict) and result.get("from_name") in KINDS:
                answer = result.get("value")
                value: JsonObject = answer if isinstance(answer, dict) else {}
                content = value.get("rating") if result["from_name"] == "score" else value.get("text")
                content = content[0] if isinstance(content, list) and content else content
                opinions.append(_remark(_annotator(annotation, result, known), result["from_name"], content))
    return turn, opinions


def _annotator(annotation: JsonObject, result: JsonObject, known: set[str]) -> str:
    marks = (result.get("meta") or {}).get("text") if isinstance(result.get("meta"), dict) else None
    mark = marks[0] if isinstance(marks, list) and marks else marks
    if isinstance(mark, str) and mark in known:
        return person_of(mark)
    by = annotation.get("completed_by")
    who = (by.get("email") or by.get("id")) if isinstance(by, dict) else by
    return f"label-studio:{who if who is not None else 'somebody'}"


def _remark(source: str, question: str, value: object) -> AnnotatorOpinion:
    if question == "score":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 10:
            raise BadLine(f"the score {value!r} is not from 1 to 10")
        return AnnotatorOpinion(source[:200], "rating", round(value), "")
    if not isinstance(value, str) or not value.strip():
        raise BadLine(f"`{question}` is no text")
    return AnnotatorOpinion(source[:200], "edit" if question == "edit" else "critique", 0, redact(value))


def _keep(store: Store, turn: Turn, remark: AnnotatorOpinion, tool: Tool) -> bool:
    """Whether it is new: what stands already is not said a second time."""
    own = [f for f in store.feedback(turn_id=turn.id) if f.author == remark.source and f.kind == remark.kind and f.turn_id == turn.id]  # fmt: skip
    feedback = scored(remark.score) if remark.kind == "rating" else Feedback(0, remark.kind)
    if own and (
        _score(own[-1].value) == remark.score if remark.kind == "rating" else own[-1].text == remark.text
    ):
        return False
    mark = digest((), f"{remark.source}{remark.kind}{feedback.value}{remark.text}", f"{turn.id}/{len(own)}")
    store.add_feedback(replace(feedback, turn_id=turn.id, text=remark.text, source=tool, person=remark.source, event_id=f"{tool}:{mark}"))  # fmt: skip
    return True
