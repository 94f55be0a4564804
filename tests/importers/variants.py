"""Layouts that programs and data sets write beside the usual ones in ``layouts``: each with what has to come of it. All content is invented."""

from __future__ import annotations

import json
from typing import Any

from .layouts import (
    BOTH,
    CALL,
    KEPT,
    ONE,
    PREFERRED,
    RATED,
    A,
    B,
    Case,
    G,
    Q,
    U,
    chatgpt,
    gpt_node,
    lines,
    message,
    record,
    task,
    webui_feedback,
)

N = "It depends on the egg."
RANKED = [("preference", G, N), ("preference", N, B)]
THREE = {G: Q, N: Q, B: Q}
TEXT = {"type": "text", "text": Q}


def _parts(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def _failed() -> dict[str, Any]:
    """A conversation whose answer is an error, and one more branch that has an answer."""
    made = chatgpt()
    error = {"content_type": "system_error", "name": "tool_error", "text": "Error: timeout"}
    made["mapping"]["a1"] = gpt_node("a1", "u", A, "", [], content=error)
    return made


def _pair(better: Any, worse: Any) -> str:
    return lines({"prompt": Q, "chosen": better, "rejected": worse})


def _duel(**verdict: Any) -> str:
    return lines({"question": Q, "response_A": B, "response_B": G, **verdict})


VARIANTS = [
    Case("chatgpt-error.json", [_failed()], {G: Q, "Sixty grams.": "Now weigh it."}, []),
    Case("chatgpt-no-answer.json", [{**chatgpt(), "mapping": {"u": gpt_node("u", "", U, Q, [])}}, chatgpt()], BOTH | {"Sixty grams.": "Now weigh it."}, KEPT),
    Case("deepseek-old.json", [{"id": "d", "mapping": {"root": {"parent": None, "message": None}, "1": {"parent": "root", "message": {"model": "m", "content": Q, "inserted_at": "2025-02-01T10:00:00+08:00"}}, "2": {"parent": "1", "message": {"model": "m", "content": G, "inserted_at": "2025-02-01T10:00:00+08:00"}}}}], ONE, []),
    Case("gemini-checkpoint.json", [_parts(U, {"text": Q}), _parts("model", {"text": "Let me see.", "thought": True}, {"text": G})], ONE, []),
    Case("webui-no-rating.json", [{**(one := webui_feedback(1, None)), "data": {"model_id": "m"}}], BOTH, KEPT),
    Case("codex-first.jsonl", lines({"id": "x", "timestamp": "2025-06-01T10:00:00Z", "instructions": None, "git": {}}, *({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]} for role, text in ((U, "<environment_context>x</environment_context>"), (U, Q), (A, G)))), ONE, []),
    Case("continue.json", {"sessionId": "s", "history": [{"message": message(U, Q), "contextItems": []}, {"message": message(A, G)}]}, ONE, []),
    Case("copilot.csv", f"Conversation,Time,Author,Message\nEggs,2026-01-02,Human,{Q}\nEggs,2026-01-02,AI,{G}\n", ONE, []),
    Case("gemini-tuning.jsonl", lines({"systemInstruction": _parts("system", {"text": "Be brief."}), "contents": [_parts(U, {"text": Q}), _parts("model", {"text": G})]}), ONE, []),
    Case("gemini-preference.jsonl", lines({"contents": [_parts(U, {"text": Q})], "completions": [{"score": s, "completion": _parts("model", {"text": t})} for s, t in ((1.0, G), (0.0, B))]}), BOTH, RATED),
    Case("bedrock.jsonl", lines({"system": [{"text": "Be brief."}], "messages": [{"role": U, "content": [{"text": Q}]}, {"role": A, "content": [{"text": G}]}]}), ONE, []),
    Case("api-log.jsonl", lines({"request": {"model": "m", "messages": [message(U, Q)]}, "response": {"choices": [{"message": message(A, G)}]}}), ONE, []),
    Case("trace.jsonl", lines({"id": "t", "input": {"messages": [message(U, Q)]}, "output": message(A, G)}), ONE, []),
    Case("swift.jsonl", lines({"messages": [message(U, Q), message(A, G)], "rejected_response": B}), BOTH, PREFERRED),
    Case("torchtune.json", [{"chosen_conversations": [message(U, Q), message(A, G)], "rejected_conversations": [message(U, Q), message(A, B)]}], BOTH, PREFERRED),
    Case("several.jsonl", lines({"prompt": Q, "chosen": [G], "rejected": [B, N]}), THREE, [*PREFERRED, ("preference", G, N)]),
    Case("openrlhf.jsonl", lines({"context_messages": [message(U, Q)], "chosen": message(A, G), "rejected": message(A, B)}), BOTH, PREFERRED),
    Case("exchange.jsonl", lines({"question": Q, "response_j": G, "response_k": B}), BOTH, PREFERRED),
    Case("scores-beside.jsonl", lines(*({"prompt": Q, "chosen": [message(U, Q), message(A, G)], "Chosen-Rating": 5.0, "rejected": [message(U, Q), message(A, B)], "Rejected-Rating": low} for low in (1.0, 1.0, 1.0))), BOTH, [*PREFERRED, *RATED] * 3),
    Case("judge.jsonl", _duel(label="B>>A"), BOTH, PREFERRED),
    Case("judge-tie.jsonl", _duel(label="A=B"), BOTH, []),
    Case("repeats.jsonl", _duel(preferred_answer=G), BOTH, PREFERRED),
    Case("arena-rounds.csv", 'model_a,model_b,prompt,response_a,response_b,winner_model_a,winner_model_b,winner_tie\n' + ",".join(["m1", "m2", *('"' + json.dumps(x).replace('"', '""') + '"' for x in ([Q, "More?"], [B, "b"], [G, "g"])), "0,1,0\n"]), BOTH, PREFERRED, "set:lmarena"),
    Case("oasst.csv", f'message_id,parent_id,text,role,rank,deleted\n2,1,"{B}",assistant,1.0,False\n1,,{Q},prompter,,False\n3,1,{G},assistant,0.0,False\n4,1,gone,assistant,2.0,True\n', BOTH, PREFERRED, "set:oasst"),
    Case("argilla-three.json", [record({"best": ["response-2", "response-3", "response-1"]}, **{"prompt": Q, "response-1": B, "response-2": G, "response-3": N})], THREE, RANKED, "argilla:u1"),
    Case("label-studio-ranker.json", [task([{"type": "ranker", "from_name": "r", "value": {"ranker": {"rank": ["b", "c", "a"]}}}], prompt=Q, items=[{"id": i, "title": "t", "body": t} for i, t in (("a", B), ("b", G), ("c", N))])], THREE, RANKED, "label-studio:b@example.org"),
    Case("label-studio-table.csv", f'id,prompt,response,quality,annotator,annotation_id\n1,{Q},{G},5,7,1\n2,{Q},"{B}",1,7,2\n', BOTH, RATED, "label-studio:7"),
    Case("nothing-said.json", [{"prompt": Q, "response": G, "rating": "GOOD"}, {"prompt": Q, "response": B, "rating": "N/A"}], BOTH, [("rating", G, 1.0)]),
    Case("decimals.csv", f'Prompt;Response;Score\n{Q};{G};5,0\n{Q};"{B}";1,0\n{Q};{N};4,5\n', THREE, [*RATED, ("rating", N, 0.75)]),
    Case("german.csv", f'Frage;Antwort;Bewertung;Kommentar\n{Q};{G};5;kurz und gut\n{Q};"{B}";1;\n', BOTH, RATED),
    Case("chinese.csv", f'问题,回答,评分\n{Q},{G},5\n{Q},"{B}",1\n', BOTH, RATED),
    Case("separator.csv", f'sep=;\nprompt;response;rating\n{Q};{G};1\n{Q};"{B}";-1\n', BOTH, RATED),
    Case("star-signs.csv", f'question,answer,stars\n{Q},{G},★★★★★\n{Q},"{B}",★☆☆☆☆\n', BOTH, RATED),
    Case("spaces.csv", f'User Prompt,Model Response,Thumbs Up\n{Q},{G},TRUE\n{Q},"{B}",FALSE\n', BOTH, RATED),
    Case("thumb-feedback.jsonl", lines({"question": Q, "answer": G, "feedback": "👍"}, {"question": Q, "answer": B, "feedback": "👎"}), BOTH, RATED),
    Case("no-opinion.csv", f'prompt,response,toxicity_score\n{Q},{G},0.01\n{Q},"{B}",0.97\n', BOTH, []),
    Case("columns.json", {"prompt": [Q, Q], "response": [G, B], "rating": [1, -1]}, BOTH, RATED),
    Case("frame.json", {"prompt": {"0": Q, "1": Q}, "response": {"0": G, "1": B}, "rating": {"0": 1, "1": -1}}, BOTH, RATED),
    Case("by-name.json", {name: {"prompt": Q, "response": a, "label": word} for name, a, word in (("r1", G, "desirable"), ("r2", B, "undesirable"))}, BOTH, RATED),
    Case("in-a-row.json", "\n".join(json.dumps({"prompt": Q, "response": a, "rating": r}, indent=1) for a, r in ((G, 1), (B, -1))), BOTH, RATED),
]  # fmt: skip
"""The scores of 5 and 1 are the two ends of their scale."""

_WORDS, _MORE = {"type": "text", "text": "Let me look."}, {"type": "text", "text": G}
_USE = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Oslo"}}
_RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "3 C"}]}
_BOX = '<details type="tool_calls" done="true" id="c1" name="get_weather" arguments="&quot;{\\&quot;city\\&quot;: \\&quot;Oslo\\&quot;}&quot;" result="&quot;3 C&quot;">\n<summary>Tool</summary>\n</details>\n'


def _studio(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "contentBlock", "content": list(content)}


STEPS = {
    "claude.json": [{"uuid": "k", "chat_messages": [{"uuid": "1", "sender": "human", "text": Q, "content": []}, {"uuid": "2", "sender": A, "text": "", "content": [_WORDS, _USE, _RESULT, _MORE]}]}],
    "blocks.json": [{"role": U, "content": [TEXT]}, {"role": A, "content": [_WORDS, _USE]}, {"role": U, "content": [_RESULT]}, {"role": A, "content": [_MORE]}],
    "open-webui.json": [{"id": "w", "chat": {"history": {"currentId": "2", "messages": {"1": {"parentId": None, **message(U, Q)}, "2": {"parentId": "1", **message(A, "Let me look.\n" + _BOX + G)}}}}}],
    "lm-studio.json": {"messages": [{"versions": [{"role": U, "content": [TEXT]}], "currentlySelected": 0}, {"versions": [{"role": A, "steps": [_studio(_WORDS, {"type": "toolCallRequest", "toolCallRequestId": "c1", "name": "get_weather", "parameters": {"city": "Oslo"}}), _studio({"type": "toolCallResult", "toolCallRequestId": "c1", "content": '[{"type": "text", "text": "3 C"}]'}), _studio(_MORE)]}], "currentlySelected": 0}]},
    "librechat.json": {"conversationId": "l", "messages": [{"messageId": "1", "isCreatedByUser": True, "text": Q}, {"messageId": "2", "parentMessageId": "1", "isCreatedByUser": False, "text": "", "content": [_WORDS, {"type": "tool_call", "tool_call": {"id": "c1", "name": "get_weather", "args": '{"city": "Oslo"}', "output": "3 C"}}, _MORE]}]},
    "opencode.json": {"info": {"id": "o"}, "messages": [{"info": {"id": "1", "role": U}, "parts": [TEXT]}, {"info": {"id": "2", "role": A}, "parts": [_WORDS, {"type": "tool", "callID": "c1", "tool": "get_weather", "state": {"input": {"city": "Oslo"}, "output": "3 C"}}, _MORE]}]},
    "gemini.jsonl": lines({"sessionId": "g", "kind": "main"}, {"id": "1", "type": "user", "content": Q}, {"id": "2", "type": "gemini", "content": "Let me look.", "toolCalls": [{"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}, "result": [{"functionResponse": {"id": "c1", "response": {"output": "3 C"}}}], "status": "success"}]}, {"id": "3", "type": "gemini", "content": G}),
    "claude-code.jsonl": lines(*({"type": role, "uuid": str(n), "sessionId": "s", "message": {"role": role, "id": str(n), "content": content}} for n, (role, content) in enumerate([(U, Q), (A, [_WORDS, _USE]), (U, [_RESULT]), (A, [_MORE])]))),
    "openai.jsonl": lines({"messages": [message(U, Q), message(A, "Let me look.", tool_calls=[CALL]), {"role": "tool", "tool_call_id": "c1", "content": "3 C"}, message(A, G)]}),
}  # fmt: skip
"""The same conversation, with a call of a tool, as many programs write it."""
