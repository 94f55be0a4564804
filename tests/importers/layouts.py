"""Small samples in the layouts that programs and data sets write, each with what has to come of it. All content is invented.

A case: (name of the file, its content, conversations and answers as (messages, answer), opinions as (kind, answer, value or worse answer, person)).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Q, G, B = "How do I boil an egg?", "Eight minutes in boiling water.", "I cannot boil eggs, sorry about that."
Q2, G2, B2 = "What is a fjord?", "A narrow inlet between cliffs.", "Fjords are nice."
U, A = "user", "assistant"
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}


class Case(NamedTuple):
    """``answers``: answer → the question before it. ``opinions``: (kind, answer, value or the worse answer)."""

    name: str
    data: Any
    answers: dict[str, str]
    opinions: list[tuple[str, str, Any]]
    person: str = "owner"


def lines(*records: Any) -> str:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)


def message(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def gpt_node(
    name: str, parent: str, role: str, text: str, children: list[str], **more: Any
) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    inner = {"id": name, "author": {"role": role}, "content": content, "create_time": 1.7e9, "recipient": "all", "metadata": {}, "status": "finished_successfully"}  # fmt: skip
    return {"id": name, "parent": parent, "children": children, "message": inner | more}


def chatgpt(current: str = "a2", name: str = "c0") -> dict[str, Any]:
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "hm"}]}
    return {
        "title": "t", "conversation_id": name, "id": name, "current_node": current, "create_time": 1.7e9,
        "mapping": {
            "root": {"id": "root", "message": None, "parent": None, "children": ["s"]},
            "s": gpt_node("s", "root", "system", "", ["u"]),
            "u": gpt_node("u", "s", U, Q, ["a1", "th"]),
            "a1": gpt_node("a1", "u", A, B, [], metadata={"model_slug": "gpt-4o"}),
            "th": gpt_node("th", "u", A, "", ["a2"], content=thoughts),
            "a2": gpt_node("a2", "th", A, G, ["u2"], metadata={"model_slug": "gpt-4o", "finish_details": {"type": "max_tokens"}}),
            "u2": gpt_node("u2", "a2", U, "Now weigh it.", ["t"]),
            "t": gpt_node("t", "u2", A, "1+1", ["r"], recipient="python", content={"content_type": "code", "text": "1+1"}),
            "r": gpt_node("r", "t", "tool", "2", ["a3"], content={"content_type": "execution_output", "text": "2"}),
            "a3": gpt_node("a3", "r", A, "Sixty grams.", []),
        },
    }  # fmt: skip


def claude() -> dict[str, Any]:
    def block(text: str) -> list[dict[str, Any]]:
        return [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}]

    stamp = "2026-01-02T03:04:05.000000Z"
    return {
        "uuid": "k1", "name": "t", "account": {"uuid": "x"}, "created_at": stamp,
        "chat_messages": [
            {"uuid": "m1", "text": Q, "content": [{"type": "text", "text": Q}], "sender": "human", "created_at": stamp, "attachments": [], "files": []},
            {"uuid": "m2", "text": G, "content": block(G), "sender": A, "created_at": stamp, "attachments": [], "files": []},
        ],
    }  # fmt: skip


def webui_chat(name: str = "w1", **annotation: Any) -> dict[str, Any]:
    first = message(
        A, B, id="m2", parentId="m1", childrenIds=[], model="qwen3:4b", timestamp=1730000001, done=True
    )
    second = message(A, f'<details type="reasoning" done="true" duration="1">\n<summary>Thought</summary>\n> hm\n</details>\n{G}', id="m3", parentId="m1", childrenIds=[], model="llama3:8b", timestamp=1730000002, done=True)  # fmt: skip
    history = {"m1": message(U, Q, id="m1", parentId=None, childrenIds=["m2", "m3"], timestamp=1730000000), "m2": first, "m3": second | ({"annotation": annotation} if annotation else {})}  # fmt: skip
    chat = {"title": Q, "models": ["qwen3:4b"], "params": {"system": "Be brief."}, "history": {"messages": history, "currentId": "m3"}, "messages": []}  # fmt: skip
    return {
        "id": name,
        "user_id": "u",
        "title": Q,
        "chat": chat,
        "updated_at": 1730000002,
        "created_at": 1730000000,
    }


def webui_feedback(rating: int, siblings: list[str] | None, **details: Any) -> dict[str, Any]:
    data = {"rating": rating, "model_id": "llama3:8b", "sibling_model_ids": siblings, "reason": "too_verbose", "comment": "cut it", **details}  # fmt: skip
    return {"id": "f1", "user_id": "u", "version": 0, "type": "rating", "data": data, "meta": {"chat_id": "w1", "message_id": "m3", "arena": False}, "snapshot": {"chat": webui_chat()}, "created_at": 1730000003, "updated_at": 1730000004}  # fmt: skip


def lm_studio(selected: int = 1) -> dict[str, Any]:
    def said(text: str) -> dict[str, Any]:
        thought = {
            "type": "contentBlock",
            "style": {"type": "thinking"},
            "content": [{"type": "text", "text": "hm"}],
        }
        block = {"type": "contentBlock", "content": [{"type": "text", "text": text}], "genInfo": {"indexedModelIdentifier": "qwen/qwen3-4b", "stats": {"stopReason": "eosFound"}}}  # fmt: skip
        return {"type": "multiStep", "role": A, "senderInfo": {"senderName": "qwen"}, "steps": [thought, block, {"type": "debugInfoBlock", "debugInfo": "x"}]}  # fmt: skip

    asked = {"versions": [{"type": "singleStep", "role": U, "content": [{"type": "text", "text": Q}]}], "currentlySelected": 0}  # fmt: skip
    return {"name": "t", "pinned": False, "createdAt": 1730000000000, "systemPrompt": "Be brief.", "messages": [asked, {"versions": [said(B), said(G)], "currentlySelected": selected}]}  # fmt: skip


def librechat(recursive: bool) -> dict[str, Any]:
    base = {"conversationId": "l1", "model": "gpt-4o", "endpoint": "openAI"}
    asked = base | {"messageId": "u1", "parentMessageId": "00000000-0000-0000-0000-000000000000", "sender": "User", "text": Q, "isCreatedByUser": True}  # fmt: skip
    bad = base | {"messageId": "a1", "parentMessageId": "u1", "sender": "GPT", "text": B, "isCreatedByUser": False, "feedback": {"rating": "thumbsDown", "tag": {"key": "not_helpful"}, "text": "no"}}  # fmt: skip
    good = base | {"messageId": "a2", "parentMessageId": "u1", "sender": "GPT", "text": "", "isCreatedByUser": False, "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": {"value": G}}]}  # fmt: skip
    whole = {"conversationId": "l1", "endpoint": "openAI", "title": "t", "exportAt": "now", "branches": True, "recursive": recursive}  # fmt: skip
    if recursive:
        return whole | {
            "messagesTree": [asked | {"children": [bad | {"children": []}, good | {"children": []}]}]
        }
    return whole | {"messages": [asked, bad, good]}


def silly() -> str:
    head = {"user_name": "U", "character_name": "C", "create_date": "2026-1-1", "chat_metadata": {}}
    greeting = {"name": "C", "is_user": False, "is_system": False, "mes": "Hello!", "send_date": 1}
    asked = {"name": "U", "is_user": True, "is_system": False, "mes": Q, "send_date": 1730000000000}
    reply = {
        "name": "C",
        "is_user": False,
        "mes": G,
        "swipes": [B, G],
        "swipe_id": 1,
        "extra": {"model": "m"},
    }
    return lines(head, greeting, asked, reply)


def openclaw() -> str:
    def entry(name: str, parent: str | None, role: str, *content: Any, **more: Any) -> dict[str, Any]:
        return {"type": "message", "id": name, "parentId": parent, "timestamp": "2026-01-02T03:04:05Z", "message": {"role": role, "content": list(content), **more}}  # fmt: skip

    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}
    return lines(
        {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-02T03:04:05Z", "cwd": "/p"},
        {"type": "model_change", "id": "x", "parentId": None, "modelId": "m"},
        entry("1", "x", U, {"type": "text", "text": Q}),
        entry("2", "1", A, {"type": "thinking", "thinking": "hm"}, call, model="m", stopReason="toolUse"),
        entry("3", "2", "toolResult", {"type": "text", "text": "egg"}, toolCallId="c1", toolName="read"),
        entry("4", "3", A, {"type": "text", "text": G}, model="m", stopReason="stop"),
    )


def opencode() -> dict[str, Any]:
    tool = {
        "type": "tool",
        "callID": "c1",
        "tool": "bash",
        "state": {"status": "completed", "input": {"command": "ls"}, "output": "egg"},
    }
    clock = {"created": 1730000000000}
    return {
        "info": {"id": "ses_1", "directory": "/p", "title": "t"},
        "messages": [
            {"info": {"id": "msg_1", "role": U, "sessionID": "ses_1", "time": clock}, "parts": [{"type": "text", "text": Q}, {"type": "text", "text": "reminder", "synthetic": True}]},
            {"info": {"id": "msg_2", "role": A, "modelID": "m", "time": clock, "finish": "tool-calls"}, "parts": [{"type": "step-start"}, tool]},
            {"info": {"id": "msg_3", "role": A, "modelID": "m", "time": clock, "finish": "stop"}, "parts": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": G}]},
        ],
    }  # fmt: skip


def hermes() -> dict[str, Any]:
    calls = [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}]
    listed = [message(U, Q), message(A, "", tool_calls=calls), message("tool", "egg", tool_call_id="c1"), message(A, G, finish_reason="stop", reasoning="hm")]  # fmt: skip
    return {"session_id": "h1", "model": "hermes-4", "platform": "cli", "session_start": "2026-01-02T03:04:05", "system_prompt": "Be brief.", "tools": [TOOL], "messages": listed}  # fmt: skip


def oasst(tree: bool) -> Any:
    good = {
        "message_id": "2",
        "parent_id": "1",
        "message_tree_id": "1",
        "text": G,
        "role": A,
        "rank": 0,
        "labels": {},
    }
    bad = good | {"message_id": "3", "text": B, "rank": 1}
    asked = {
        "message_id": "1",
        "parent_id": None,
        "message_tree_id": "1",
        "text": Q,
        "role": "prompter",
        "rank": None,
    }
    if not tree:
        return lines(bad, asked, good)
    return lines(
        {
            "message_tree_id": "1",
            "prompt": asked | {"replies": [bad | {"replies": []}, good | {"replies": []}]},
        }
    )


def task(result: list[dict[str, Any]], **data: Any) -> dict[str, Any]:
    return {"id": 1, "data": data, "annotations": [{"id": 1, "completed_by": {"id": 7, "email": "b@example.org"}, "result": result, "was_cancelled": False}]}  # fmt: skip


def record(responses: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "1", "fields": fields, "responses": {q: [{"value": v, "user_id": "u1", "status": "submitted"}] for q, v in responses.items()}, "suggestions": {}, "metadata": {}}  # fmt: skip


BOTH, ONE = {G: Q, B: Q}, {G: Q}
KEPT = [("implicit", G, B)]
PREFERRED = [("preference", G, B)]
RATED = [("rating", G, 1.0), ("rating", B, -1.0)]
HH = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: {}\n\nAssistant: {}"
UF = {"instruction": Q, "source": "x", "models": ["m1", "m2"], "completions": [
    {"model": "m1", "response": G, "fine-grained_score": 5.0, "overall_score": 9.0, "critique": "Right.", "annotations": {}},
    {"model": "m2", "response": B, "fine-grained_score": 1.0, "overall_score": 2.0, "critique": "Wrong.", "annotations": {}}]}  # fmt: skip
STEER = {"coherence": 4, "complexity": 1, "verbosity": 1}
EVERY = [message(U, Q), message(A, G)]
HISTORIES = [
    Case("conversations.json", [chatgpt()], BOTH | {"Sixty grams.": "Now weigh it."}, KEPT),
    Case("claude/conversations.json", [claude()], ONE, []),
    Case("webui-chats.json", [webui_chat(rating=1, details={"rating": 9}, comment="short")], BOTH, [*KEPT, ("rating", G, 7 / 9)]),
    Case("webui-feedback.json", [webui_feedback(-1, None)], BOTH, [*KEPT, ("rating", G, -1.0)]),
    Case("webui-arena.json", [webui_feedback(1, ["qwen3:4b"], details={"rating": 10})], BOTH, [*KEPT, ("rating", G, 1.0), *PREFERRED]),
    Case("x.conversation.json", lm_studio(), BOTH, KEPT),
    Case("librechat.json", librechat(False), BOTH, [*KEPT, ("rating", B, -1.0)]),
    Case("librechat-tree.json", librechat(True), BOTH, [*KEPT, ("rating", B, -1.0)]),
    Case("silly.jsonl", silly(), BOTH, KEPT),
    Case("openclaw.jsonl", openclaw(), ONE, []),
    Case("opencode.json", opencode(), ONE, []),
    Case("hermes.json", hermes(), ONE, []),
    Case("gemini.json", {"sessionId": "g", "projectHash": "x", "startTime": "2026-01-02T03:04:05Z", "messages": [
        {"id": "1", "timestamp": "2026-01-02T03:04:05Z", "type": "user", "content": Q},
        {"id": "2", "timestamp": "2026-01-02T03:04:06Z", "type": "gemini", "content": G, "model": "gemini-3-pro", "thoughts": [], "tokens": {}}]}, ONE, []),
    Case("codex.jsonl", lines(
        {"timestamp": "2026-01-02T03:04:05Z", "type": "session_meta", "payload": {"id": "x1", "cwd": "/p"}},
        {"timestamp": "2026-01-02T03:04:05Z", "type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}},
        {"timestamp": "2026-01-02T03:04:05Z", "type": "event_msg", "payload": {"type": "user_message", "message": Q}},
        {"timestamp": "2026-01-02T03:04:06Z", "type": "event_msg", "payload": {"type": "agent_message", "message": G}},
        {"timestamp": "2026-01-02T03:04:06Z", "type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t"}}), ONE, []),
    Case("deepseek.json", [{"id": "d", "title": "t", "mapping": {
        "root": {"id": "root", "parent": None, "children": ["1"], "message": None},
        "1": {"id": "1", "parent": "root", "children": ["2"], "message": {"model": "m", "inserted_at": "2026-01-02T03:04:05", "fragments": [{"type": "REQUEST", "content": Q}]}},
        "2": {"id": "2", "parent": "1", "children": [], "message": {"model": "m", "fragments": [{"type": "THINK", "content": "hm"}, {"type": "RESPONSE", "content": G}]}}}}], ONE, []),
    Case("grok.json", {"conversations": [{"conversation": {"id": "g1"}, "responses": [{"response": {"_id": "1", "sender": "human", "message": Q}}, {"response": {"_id": "2", "sender": "ASSISTANT", "message": G, "model": "grok-4"}}]}]}, ONE, []),
    Case("textgen.json", {"internal": [["<|BEGIN-VISIBLE-CHAT|>", "Hi!"], [Q, G]], "visible": [["", "Hi!"], [Q, G]]}, ONE, []),
    Case("jan.jsonl", lines({"id": "1", "object": "thread.message", "thread_id": "j", "role": U, "content": [{"type": "text", "text": {"value": Q, "annotations": []}}], "created_at": 1730000000000},
                            {"id": "2", "object": "thread.message", "thread_id": "j", "role": A, "content": [{"type": "text", "text": {"value": G}}], "created_at": 1730000001000}), ONE, []),
    Case("hf-chat.json", [{"title": "t", "model": "m", "messages": [{"id": "1", "from": U, "content": Q, "ancestors": []}, {"id": "2", "from": A, "content": B, "ancestors": ["1"], "score": -1}, {"id": "3", "from": A, "content": G, "ancestors": ["1"]}]}], BOTH, [*KEPT, ("rating", B, -1.0)]),
    Case("ollama.jsonl", lines(message(U, Q), message(A, G)), ONE, []),
    Case("librechat.csv", f'sender,text,isCreatedByUser,error,unfinished,messageId,parentMessageId,createdAt\nUser,{Q},true,false,false,1,,2026-01-02\nGPT-4,{G},false,false,false,2,1,2026-01-02\n', ONE, []),
    Case("webui-early.json", [{"id": "e", "chat": {"title": "t", "models": ["m"], "messages": [message(U, Q), message(A, G, model="m")]}}], ONE, []),
    Case("thumbs.json", {"id": "x", "messages": [message(U, Q, id="1"), message(A, G, id="2", rating="thumbs_up")]}, ONE, [("rating", G, 1.0)]),
]  # fmt: skip
SETS = [
    Case("sharegpt.json", [{"id": "1", "conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": G}]}], ONE, []),
    Case("openai.jsonl", lines({"messages": [*EVERY, message(U, Q2), message(A, G2)]}), {G: Q, G2: Q2}, []),
    Case("openai-dpo.jsonl", lines({"input": {"messages": [message("system", "Be brief."), message(U, Q)], "tools": [], "parallel_tool_calls": True}, "preferred_output": [message(A, G)], "non_preferred_output": [message(A, B)]}), BOTH, PREFERRED),
    Case("kto.jsonl", lines({"prompt": [message(U, Q)], "completion": [message(A, G)], "label": True}, {"prompt": [message(U, Q)], "completion": [message(A, B)], "label": False}), BOTH, RATED),
    Case("completion.jsonl", lines({"prompt": [message(U, Q)], "completion": [message(A, G)]}), ONE, []),
    Case("steps.jsonl", lines({"prompt": Q, "completions": ["Boil it.", "Cool it."], "labels": [True, False]}), {"Boil it.\nCool it.": Q}, [("rating", "Boil it.\nCool it.", -1.0)]),
    Case("implicit.jsonl", lines({"chosen": [message(U, Q), message(A, G)], "rejected": [message(U, Q), message(A, B)]}), BOTH, PREFERRED),
    Case("hh.jsonl", lines({"chosen": HH.format(Q, G), "rejected": HH.format(Q, B)}), BOTH, PREFERRED, "set:hh-rlhf"),
    Case("oasst.jsonl", oasst(True), BOTH, PREFERRED, "set:oasst"),
    Case("oasst-flat.jsonl", oasst(False), BOTH, PREFERRED, "set:oasst"),
    Case("ultrafeedback.jsonl", lines(UF), BOTH, [*RATED], "set:ultrafeedback"),
    Case("helpsteer.jsonl", lines({"prompt": Q, "response": G, "helpfulness": 4, "correctness": 4, **STEER}, {"prompt": Q, "response": B, "helpfulness": 0, "correctness": 1, **STEER}), BOTH, RATED, "set:helpsteer"),
    Case("helpsteer3.jsonl", lines({"domain": "general", "language": "english", "context": [message(U, Q)], "response1": B, "response2": G, "overall_preference": 2, "individual_preference": []}), BOTH, PREFERRED, "set:helpsteer"),
    Case("helpsteer3-edit.jsonl", lines({"domain": "general", "context": [message(U, Q)], "original_response": B, "edited_response": G, "feedback": ["It should answer the question."]}), {B: Q}, [("critique", B, "It should answer the question."), ("edit", B, G)], "set:helpsteer"),
    Case("nectar.jsonl", lines({"prompt": f"\n\nHuman: {Q}\n\nAssistant: ", "answers": [{"answer": B, "model": "m2", "rank": 2.0}, {"answer": G, "model": "m1", "rank": 1.0}], "turns": 1}), BOTH, PREFERRED, "set:nectar"),
    Case("arena.jsonl", lines({"question_id": "1", "model_a": "m1", "model_b": "m2", "winner": "model_b", "judge": "j", "conversation_a": [message(U, Q), message(A, B)], "conversation_b": [message(U, Q), message(A, G)], "turn": 1}), BOTH, PREFERRED, "set:lmarena"),
    Case("arena-55k.csv", f'id,model_a,model_b,prompt,response_a,response_b,winner_model_a,winner_model_b,winner_tie\n1,m1,m2,"[""{Q}""]","[""{G}""]","[""{B}""]",1,0,0\n', BOTH, PREFERRED, "set:lmarena"),
    Case("alpaca.json", [{"instruction": "Translate.", "input": "Ei", "output": G}], {G: "Translate.\n\nEi"}, []),
    Case("dolly.jsonl", lines({"instruction": Q, "context": "", "response": G, "category": "open_qa"}), ONE, []),
    Case("guanaco.jsonl", lines({"text": f"### Human: {Q}### Assistant: {G}".replace("### A", "\n### A")}), ONE, []),
    Case("chatml.jsonl", lines({"text": f"<|im_start|>user\n{Q}<|im_end|>\n<|im_start|>assistant\n{G}<|im_end|>\n"}), ONE, []) ,
    Case("shp.jsonl", lines({"history": Q, "human_ref_A": B, "human_ref_B": G, "labels": 0, "score_A": 2, "score_B": 9}), BOTH, PREFERRED),
    Case("webgpt.jsonl", lines({"question": {"full_text": Q, "id": "1"}, "answer_0": B, "answer_1": G, "score_0": -0.5, "score_1": 0.5}), BOTH, PREFERRED),
    Case("summaries.jsonl", lines({"info": {"post": Q}, "summaries": [{"text": B}, {"text": G}], "choice": 1}), BOTH, PREFERRED),
    Case("beavers.jsonl", lines({"prompt": Q, "response_0": G, "response_1": B, "better_response_id": 0}), BOTH, PREFERRED),
    Case("rank.jsonl", lines({"prompt": Q, "responses": [G, B], "scores": [5, 1]}), BOTH, RATED),
    Case("mine.csv", f"Question,Answer,Stars\n{Q},{G},5\n{Q},\"{B}\",1\n", BOTH, RATED),
    Case("mine.tsv", f"prompt\tresponse\tthumbs\n{Q}\t{G}\tup\n{Q}\t{B}\tdown\n", BOTH, RATED),
    Case("semicolons.csv", f"prompt;response;rating\n{Q};{G};1\n{Q};{B};-1\n", BOTH, RATED),
    Case("history.json", [{"instruction": Q2, "input": "", "output": G2, "history": [[Q, G]]}], {G2: Q2}, []),
    Case("viewer.json", {"rows": [{"row_idx": 0, "row": {"prompt": Q, "chosen": G, "rejected": B}}]}, BOTH, PREFERRED),
    Case("argilla.json", [record({"quality": 5}, prompt=Q, response=G), record({"quality": 1}, prompt=Q, response=B)], BOTH, RATED, "argilla:u1"),
    Case("argilla-words.json", [record({"good": "yes", "correction": "Better.", "why": "It is much too long."}, instruction=Q, completion=G)], ONE, [("rating", G, 1.0), ("edit", G, "Better."), ("critique", G, "It is much too long.")], "argilla:u1"),
    Case("argilla-ranking.json", [record({"best": [{"value": "response-2", "rank": 1}, {"value": "response-1", "rank": 2}]}, **{"prompt": Q, "response-1": B, "response-2": G})], BOTH, PREFERRED, "argilla:u1"),
    Case("label-studio.json", [task([{"type": "pairwise", "from_name": "c", "value": {"selected": "right"}}], prompt=Q, answer1=B, answer2=G)], BOTH, PREFERRED, "label-studio:b@example.org"),
    Case("label-studio-stars.json", [task([{"type": "rating", "from_name": "stars", "value": {"rating": r}}], question=Q, answer=a) for a, r in ((G, 5), (B, 1))], BOTH, RATED, "label-studio:b@example.org"),
    Case("label-studio-min.json", [{"id": 1, "prompt": Q, "answer1": B, "answer2": G, "comparison": "right", "annotator": 1}], BOTH, PREFERRED),
    Case("helpsteer2-pairs.jsonl", lines({"split": "train", "prompt": Q, "response_1": G, "response_2": B, "preference_strength": -1, "preference_statement": "It answers."}), BOTH, PREFERRED, "set:helpsteer"),
    Case("verdict-in-words.csv", f'question,model_a,model_b,response_a,response_b,preference\n{Q},m1,m2,"{B}",{G},Response B is slightly better\n', BOTH, PREFERRED),
    Case("llama-factory.json", [{"conversations": [{"from": "human", "value": Q}], "chosen": {"from": "gpt", "value": G}, "rejected": {"from": "gpt", "value": B}}], BOTH, PREFERRED),
    Case("kto-tag.json", [{"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": G}], "kto_tag": True}, {"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": B}], "kto_tag": False}], BOTH, RATED),
    Case("orca.jsonl", lines({"system": "Be brief.", "question": Q, "chosen": G, "rejected": B}), BOTH, PREFERRED),
    Case("items.json", [{"id": "1", "items": [{"from": "human", "value": Q}, {"from": "gpt", "value": G}]}], ONE, []),
    Case("liked.csv", f"prompt,response,liked\n{Q},{G},true\n", ONE, [("rating", G, 1.0)]),
    Case("anythingllm.csv", f'id,username,workspace,prompt,response,sent_at,rating\n1,u,w,{Q},{G},2026-01-02T03:04:05Z,GOOD\n2,u,w,{Q},"{B}",2026-01-02T03:04:05Z,--\n', BOTH, [("rating", G, 1.0)]),
    Case("argilla-hub.jsonl", lines({"prompt": Q, "response": G, "quality.responses": [5], "quality.responses.users": ["u1"], "quality.responses.status": ["submitted"]}, {"prompt": Q, "response": B, "quality.responses": [1], "quality.responses.users": ["u1"], "quality.responses.status": ["submitted"]}), BOTH, RATED, "argilla:u1"),
    Case("arena-140k.jsonl", lines({"id": "1", "model_a": "m1", "model_b": "m2", "winner": "model_a", "conversation_a": [{"role": "user", "content": [{"type": "text", "text": Q, "image": None}]}, {"role": "assistant", "content": [{"type": "text", "text": G, "image": None}]}], "conversation_b": [{"role": "user", "content": [{"type": "text", "text": Q, "image": None}]}, {"role": "assistant", "content": [{"type": "text", "text": B, "image": None}]}], "full_conversation": []}), BOTH, PREFERRED, "set:lmarena"),
    Case("nectar-rounds.jsonl", lines({"prompt": HH.format(Q, ""), "answers": [{"answer": G, "model": "m", "rank": 1.0}, {"answer": B, "model": "n", "rank": 2.0}]}), BOTH, PREFERRED, "set:nectar"),
]  # fmt: skip
