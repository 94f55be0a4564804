"""A request's conversation as the tokens that the policy reads: for the server, and for programs that lead an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from clawback.capture import conversation_threads
from clawback.dialects import Asked
from clawback.environments.tools.calls import in_words
from clawback.records import JsonObject, text_of, under

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.templates import Chat

WITHOUT_LIMIT = 2**31
"""Tokens that a prompt may have where its length is looked at afterwards."""
_describing: WeakKeyDictionary[Chat, bool] = WeakKeyDictionary()
"""Whether the template of each chat describes tools."""


def conversation_tokens(policy: Policy, request: Asked, system: str = "") -> list[int]:
    """With the version's own prompt (``system``), as the chat template writes it.

    What does not fit loses what the agent put in, then the oldest messages.
    """
    return fitted_conversation(policy, request, system)[0]


def fitted_conversation(policy: Policy, request: Asked, system: str = "") -> tuple[list[int], int]:
    """``conversation_tokens``, and how many tokens the request has with all that they leave out (its messages, where it is so long that these
    alone do not fit)."""
    chat, room = policy.chat, policy.max_prompt
    if request.raw is not None:
        complete = list(policy.tokenizer.encode(request.raw))
        return complete[-room:], len(complete)
    messages = [_plain(message) for message in under(request.messages, system)]
    length = len(messages)
    if length <= room:  # a message is a token at least
        ids, length = _with_tools(chat, messages, request.tools, room)
        if len(ids) <= room:
            return ids, length
    return chat.prompt(under(conversation_threads.human(messages) or messages, system), room), length


def _with_tools(
    chat: Chat, messages: list[JsonObject], tools: Sequence[Mapping[str, Any]], room: int
) -> tuple[list[int], int]:
    """As the template describes tools; where it does not, in words as ``clawback env train`` does, if there is room for them. How many tokens it
    is with the tools, too."""
    if tools and _describes_tools(chat) and (ids := _by_template(chat, messages, list(tools))):
        return ids, len(ids)
    described: list[int] = []
    with suppress(RecursionError):  # a schema within a schema within …
        described = chat.prompt(in_words(messages, tools), WITHOUT_LIMIT) if tools else []
    ids = described if 0 < len(described) <= room else chat.prompt(messages, WITHOUT_LIMIT)
    return ids, max(len(described), len(ids))


def _describes_tools(chat: Chat) -> bool:
    """Whether the chat template says anything of tools."""
    if chat not in _describing:
        question = [{"role": "user", "content": "?"}]
        tool = {"type": "function", "function": {"name": "f"}}
        _describing[chat] = _by_template(chat, question, [tool]) != _by_template(chat, question, None)
    return _describing[chat]


def _by_template(chat: Chat, messages: list[JsonObject], tools: list[Mapping[str, Any]] | None) -> list[int]:
    """[] where the template does not take the conversation: it may raise anything."""
    from clawback.templates import EndlessTemplate

    try:
        encoding = chat.tokenizer.apply_chat_template(
            messages,
            tools=tools,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **chat.template_args,
        )
    except EndlessTemplate:
        raise
    except Exception:
        return []
    return list(encoding["input_ids"])


def _plain(message: Mapping[str, Any]) -> JsonObject:
    """A message whose content is text, which is what a text model's template takes."""
    return {**message, "content": text_of(message.get("content"))}
