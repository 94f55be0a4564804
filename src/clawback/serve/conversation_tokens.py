"""A request's conversation as the tokens that the policy reads: for the server, and for programs that lead an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from clawback.capture import conversation_threads
from clawback.environments.tools.calls import in_words
from clawback.records import text_of
from clawback.serve.dialects import Asked
from clawback.system_prompt import under

if TYPE_CHECKING:
    from clawback.models import Chat
    from clawback.policy import Policy

WITHOUT_LIMIT = 2**31
"""Tokens that a prompt may have where its length is looked at afterwards."""
_describing: WeakKeyDictionary[Chat, bool] = WeakKeyDictionary()
"""Whether the template of each chat describes tools."""


def conversation_tokens(policy: Policy, request: Asked, system: str = "") -> list[int]:
    """With the version's own prompt (``system``), as the chat template writes it.

    What does not fit loses what the agent put in, then the oldest messages.
    """
    chat, room = policy.chat, policy.max_prompt
    if request.raw is not None:
        return list(policy.tokenizer.encode(request.raw))[-room:]
    messages = [_plain(message) for message in under(request.messages, system)]
    if len(messages) <= room:  # a message is a token at least
        complete = (
            _with_tools(chat, messages, request.tools, room)
            if request.tools
            else chat.prompt(messages, WITHOUT_LIMIT)
        )
        if len(complete) <= room:
            return complete
    return chat.prompt(under(conversation_threads.human(messages) or messages, system), room)


def _with_tools(
    chat: Chat, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], room: int
) -> list[int]:
    """As the template describes tools; where it does not, in words as ``clawback env train`` does, if there is room for them."""
    if _describes_tools(chat) and (ids := _by_template(chat, messages, list(tools))):
        return ids
    try:
        ids = chat.prompt(in_words(messages, tools), WITHOUT_LIMIT)
    except RecursionError:  # a schema within a schema within …
        ids = []
    return ids if 0 < len(ids) <= room else chat.prompt(messages, WITHOUT_LIMIT)


def _describes_tools(chat: Chat) -> bool:
    """Whether the chat template says anything of tools."""
    if chat not in _describing:
        question = [{"role": "user", "content": "?"}]
        tool = {"type": "function", "function": {"name": "f"}}
        _describing[chat] = _by_template(chat, question, [tool]) != _by_template(chat, question, None)
    return _describing[chat]


def _by_template(
    chat: Chat, messages: list[dict[str, Any]], tools: list[Mapping[str, Any]] | None
) -> list[int]:
    """[] where the template does not take the conversation: it may raise anything."""
    from clawback.models import EndlessTemplate

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


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose content is text, which is what a text model's template takes."""
    return {**message, "content": text_of(message.get("content"))}
