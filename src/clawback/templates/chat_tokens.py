"""Conversations to token ids, by the tokenizer's own chat template.

Templates are strict in different ways: Gemma refuses a system message, Mistral wants user and assistant to
take turns, most know nothing of tool results. Captured conversations keep to none of these rules, and one odd
context must not fail a whole run. So each conversation is tried as it is, then in plainer and plainer forms
until the template accepts it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clawback.errors import ModelError
from clawback.records import Message, text_of, under
from clawback.templates import rendering
from clawback.templates.rendering import NextSpeaker
from clawback.thinking import split_thinking

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.templates.vision import Pixels, Vision

Plain = dict[str, str]

PROMPT_TOKENS = 4096
"""What is kept of a prompt unless told otherwise, in tokens."""
RESPONSE_TOKENS = 2048

OPENINGS = ("<think>", "[THINK]", "<|channel|>")
_CLOSINGS = {"<think>": "\n</think>\n\n", "[THINK]": "[/THINK]"}
_MARK_TOKENS = 16
"""Tokens at the end of a prompt among which such a mark is."""
_TOOL_ROLES = {"tool", "function", "tool_result"}
_SYSTEM_ROLES = {"system", "developer"}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt and its response as ids. The response ends with the end-of-turn token unless it was cut off."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    thought: int = 0
    """Tokens at the end of ``prompt`` that the model itself thought before it answered: what the answer is conditional on."""
    pixels: Pixels | None = None
    """What the model sees beside the prompt's tokens."""
    starts: tuple[int, ...] = ()
    """Where replies begin in the response, which are held to ``scoring/choices.py``."""

    @property
    def question(self) -> tuple[int, ...]:
        """The prompt as it was put to the model."""
        return self.prompt[: len(self.prompt) - self.thought]


class Chat:
    """A tokenizer together with what was learned about its template."""

    def __init__(
        self,
        tokenizer: Any,
        template_args: Mapping[str, Any] | None = None,
        system: str = "",
        eyes: Vision | None = None,
    ) -> None:
        """``template_args``: what the template is given beside the messages. One that can switch thinking off does so unless told
        otherwise: a thought costs hundreds of tokens, and nobody rates it. ``system``: a learned prompt, added to every conversation. ``eyes``: of a model that sees; pictures are
        left out of conversations for any other."""
        self.tokenizer, self.system, self.eyes = tokenizer, system, eyes
        template = str(getattr(tokenizer, "chat_template", None) or "")
        usual = {"enable_thinking": False} if "enable_thinking" in template else {}
        self.template_args: JsonObject = usual | dict(template_args or {})
        if isinstance(warned := getattr(tokenizer, "deprecation_warnings", None), dict):
            # What is too long is cut here; the library's warning of "indexing errors" would only frighten.
            warned["sequence-length-is-longer-than-the-specified-maximum"] = True
        for one in _templates(tokenizer):
            rendering.check(one, self.template_args)
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        known = (template, *(str(token) for token in added))
        self.thinks = any(mark in text for mark in OPENINGS for text in known)
        """Whether this model may think aloud before it answers."""
        self.end_id = _end_of_turn(tokenizer)
        """The token that ends an assistant's turn."""
        self.speaker = None if template else NextSpeaker(tokenizer)
        """Where answers end without a template: at the next speaker's label."""
        self.parts = eyes is not None and _wants_parts(tokenizer)
        """Whether the template reads a message's content as a list of parts alone, as those of models that see often do."""

    def encode(
        self,
        messages: Sequence[Message],
        response: str,
        response_ids: Sequence[int] | None = None,
        *,
        limits: tuple[int, int] = (PROMPT_TOKENS, RESPONSE_TOKENS),
        thinking: bool = True,
        ends: bool = True,
    ) -> Encoded:
        """The prompt, and the response by its recorded ids where there are any, else by its text.

        Prompt and response are tokenized apart, as they are when the model answers. ``limits``: the most tokens of each. A response that was cut
        (``ends`` is False), or is longer than its limit and cut here, has no end token: the model should not learn to stop there.
        """
        max_prompt, max_response = limits
        prompt, pixels = self.looked(messages, max_prompt)
        if response_ids is not None:
            found = self.encoded(prompt, [int(token) for token in response_ids], thinking=thinking)
            return dataclasses.replace(found, response=found.response[:max_response], pixels=pixels)
        ids = self.tokenizer.encode(response, add_special_tokens=False)
        ids = [*ids, self.end_id] if ends or not ids else ids
        return Encoded(tuple(prompt), tuple(ids[:max_response]), pixels=pixels)

    def looked(
        self,
        messages: Sequence[Message],
        max_tokens: int = PROMPT_TOKENS,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[list[int], Pixels | None]:
        """As ``prompt``, with the pictures where the model sees and there are some. What is too long loses its oldest messages, and pictures with them; a
        last message that is too long with its pictures is read without. ``tools``: what the template is told of beside pictures."""
        eyes = self.eyes
        if eyes is None:
            return self.prompt(messages, max_tokens), None
        said = under(messages, self.system)
        from clawback.templates import vision

        shown = vision.seen(said)
        if not any(shown):
            return self.prompt(messages, max_tokens), None
        plain = [_plain(message) for message in said]
        head = len(_split_system(plain)[0])
        for first in range(head, len(plain)):
            kept = [*range(head), *range(first, len(plain))]
            files = [data for i in kept for data in shown[i]]
            if not files:
                break
            text = str(
                self._through_template(
                    [_in_parts(plain[i], len(shown[i]), eyes.unmarked) for i in kept],
                    tokenize=False,
                    **({"tools": list(tools)} if tools else {}),
                )
            )
            ids, pixels = eyes.look(text, files)
            if len(ids) <= max_tokens:
                return ids, pixels
        return self.prompt(messages, max_tokens), None

    def encoded(self, prompt: Sequence[int], ids: Sequence[int], *, thinking: bool = False) -> Encoded:
        """A prompt and what was sampled after it. Without ``thinking`` the model's thoughts count as something that the answer was
        conditional on, and the answer alone is the response."""
        thought = 0 if thinking else self.thought(prompt, ids)
        return Encoded((*prompt, *ids[:thought]), tuple(ids[thought:]), thought)

    def thought(self, prompt: Sequence[int], ids: Sequence[int]) -> int:
        """How many of the tokens sampled after ``prompt`` are thinking, what stands between it and the answer included.

        The mark that opens it may be the template's last words (DeepSeek R1) or the model's first (Qwen 3).
        """
        if not self.thinks:
            return 0
        whole = self._opened(prompt) + self.tokenizer.decode(list(ids))
        _, answer = split_thinking(whole)
        if answer == whole:
            return 0
        if not answer:
            return len(ids)
        # The answer begins at the first token from which on the rest is no longer than it.
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if len(self.tokenizer.decode(list(ids[middle:]))) <= len(answer):
                high = middle
            else:
                low = middle + 1
        return low

    def text(self, prompt: Sequence[int], ids: Sequence[int], dialogue: bool = True) -> tuple[str, str]:
        """What was thought, and what was answered, as a person reads it. ``dialogue``: False where the text is no turn of a conversation, so
        that no speaker follows it."""
        thought = self.thought(prompt, ids)
        answer = str(self.tokenizer.decode(list(ids[thought:]), skip_special_tokens=True))
        if self.speaker is not None and dialogue:
            answer = answer[: self.speaker.answer_end(answer)].rstrip()
        if not thought:
            return "", answer
        said = self._opened(prompt) + self.tokenizer.decode(list(ids[:thought]))
        return split_thinking(said)[0], answer

    def tokens_of(self, prompt: Sequence[int], ids: Sequence[int], answer: str) -> int:
        """How many of the tokens sampled after ``prompt`` say ``answer``, with which their text begins: at least one."""
        count = len(ids)
        while count > 1 and len(self.text(prompt, ids[: count - 1])[1]) >= len(answer):
            count -= 1
        return count

    def _opened(self, prompt: Sequence[int]) -> str:
        """The mark with which a prompt leaves the model thinking; "" where it does not."""
        end = self.tokenizer.decode(list(prompt[-_MARK_TOKENS:])).rstrip()
        return next((mark for mark in OPENINGS if end.endswith(mark)), "")

    def thought_out(self, prompt: Sequence[int]) -> list[int]:
        """The prompt as it is where the model shall answer at once: a thought that the template leaves open is closed."""
        close = _CLOSINGS.get(self._opened(prompt), "") if self.thinks else ""
        return [*prompt, *(self.tokenizer.encode(close, add_special_tokens=False) if close else ())]

    def prompt(self, messages: Sequence[Message], max_tokens: int = PROMPT_TOKENS) -> list[int]:
        """The ids up to where the assistant's answer begins, at most ``max_tokens`` of them.

        What is too long loses its oldest messages (the system message and the last message stay), then the
        beginning of what is left.
        """
        plain = [_plain(message) for message in under(messages, self.system)]
        if (
            len(plain) > max_tokens
        ):  # each is a token at least: the oldest need not be written out to see that they do not fit
            system, rest = _split_system(plain)
            plain = system[:max_tokens] + rest[-max_tokens:]
        ids = self._render(plain)
        if len(ids) <= max_tokens:
            return ids
        system, rest = _split_system(plain)
        # Rendered length falls as messages go: look for the fewest that must go, by halving.
        low, high = 1, max(1, len(rest) - 1)
        while low < high:
            middle = (low + high) // 2
            if len(self._render(system + rest[middle:])) <= max_tokens:
                high = middle
            else:
                low = middle + 1
        if len(rest) > 1:
            ids = self._render(system + rest[low:])
        return ids if len(ids) <= max_tokens else self._shorten(system, rest[-1:], max_tokens)

    def _shorten(self, system: list[Plain], last: list[Plain], max_tokens: int) -> list[int]:
        """The last message alone is too long: drop its beginning, then that of the system message, then ids."""
        for index, part in enumerate((last, system)):
            if not part:
                continue
            ids = self._render(system + last)
            words = self.tokenizer.encode(part[0]["content"], add_special_tokens=False)
            spare = len(words) - (len(ids) - max_tokens) - 8  # 8: re-tokenizing a cut text may add a few
            if spare > 0 or index == 1:
                part[0] = {**part[0], "content": self.tokenizer.decode(words[-spare:]) if spare > 0 else ""}
                ids = self._render(system + last)
                if len(ids) <= max_tokens:
                    return ids
        return self._render(system + last)[-max_tokens:]

    def rendered(self, messages: Sequence[Message]) -> str:
        """The text whose tokens ``prompt`` gives, nothing left out: up to where the assistant's answer begins."""
        plain = [_plain(message) for message in messages]
        if not getattr(self.tokenizer, "chat_template", None):
            return _as_text(plain)
        return str(self._written(plain, tokenize=False))

    def tokens(self, text: str) -> list[int]:
        """Ids of what ``rendered`` gave."""
        bare = not getattr(self.tokenizer, "chat_template", None)
        return [int(token) for token in self.tokenizer.encode(text, add_special_tokens=bare)]

    def _render(self, messages: list[Plain]) -> list[int]:
        """The first form of the conversation that the template takes. Without a template: plain labelled text."""
        if not getattr(self.tokenizer, "chat_template", None):
            return [int(token) for token in self.tokenizer.encode(_as_text(messages))]
        return [int(token) for token in self._written(messages, tokenize=True, return_dict=False)]

    def _written(self, messages: list[Plain], **how: Any) -> Any:
        """By the template, in the first form that it takes."""
        failure: Exception | None = None
        for form in _FORMS:
            try:
                shaped: Sequence[Any] = form(messages)
                return self._through_template(
                    [_in_parts(m, 0, str) for m in shaped] if self.parts else shaped, **how
                )
            except rendering.EndlessTemplate:
                raise
            except Exception as error:  # templates raise whatever they like
                failure = error
        raise ModelError(
            f"The chat template of this model takes no conversation at all: {failure}."
        ) from failure

    def _through_template(self, messages: Sequence[Any], **how: Any) -> object:
        return self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, **how, **self.template_args
        )


def _in_parts(message: Plain, pictures: int, clean: Callable[[str], str]) -> JsonObject:
    """A message with its pictures before its text, as templates of models that see take it."""
    parts: list[dict[str, str]] = [{"type": "image"}] * pictures
    return {"role": message["role"], "content": [*parts, {"type": "text", "text": clean(message["content"])}]}


def _wants_parts(tokenizer: Any) -> bool:
    """Whether the template drops, or refuses, a message whose content is plain text."""
    marker = "zebra"
    try:
        said = [{"role": "user", "content": marker}]
        return marker not in tokenizer.apply_chat_template(said, tokenize=False)
    except Exception:  # templates raise whatever they like
        return True


def _plain(message: Message) -> Plain:
    """A message with text content only. Tool calls and results become text that a model can read."""
    role = str(message.get("role") or "user").lower()
    content = message.get("content")
    parts = [text_of(content)]
    if isinstance(content, (list, tuple)):
        parts += [_block(block) for block in content if isinstance(block, dict)]
    for call in message.get("tool_calls") or ():
        function = call.get("function", {}) if isinstance(call, dict) else {}
        parts.append(f"[calls {function.get('name', 'a tool')}: {function.get('arguments', '')}]")
    text = "\n".join(part for part in parts if part)
    if role in {"assistant", "model"}:
        text = split_thinking(text)[1]  # what was thought is no part of a conversation that goes on
    if role in _TOOL_ROLES:
        return {"role": "user", "content": f"[tool result]\n{text}"}
    if role in _SYSTEM_ROLES:
        return {"role": "system", "content": text}
    return {"role": "assistant" if role in {"assistant", "model"} else "user", "content": text}


def _block(block: JsonObject) -> str:
    kind = block.get("type")
    if kind == "tool_use":
        return f"[calls {block.get('name', 'a tool')}: {block.get('input', '')}]"
    if kind == "tool_result":
        return f"[tool result]\n{text_of(block.get('content'))}"
    return ""


def _split_system(messages: list[Plain]) -> tuple[list[Plain], list[Plain]]:
    """Leading system messages, and the others."""
    count = 0
    while count < len(messages) and messages[count]["role"] == "system":
        count += 1
    return messages[:count], messages[count:]


def _as_they_are(messages: list[Plain]) -> list[Plain]:
    return messages or [{"role": "user", "content": ""}]


def _in_turns(messages: list[Plain]) -> list[Plain]:
    """System text once and first; user and assistant in turns, the user first and last."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    turns: list[Plain] = []
    for message in messages:
        if message["role"] == "system":
            continue
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1] = {**message, "content": f"{turns[-1]['content']}\n\n{message['content']}"}
        else:
            turns.append(message)
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": "…"})
    if turns[-1]["role"] != "user":
        turns.append({"role": "user", "content": "…"})
    return ([{"role": "system", "content": system}] if system else []) + turns


def _without_system(messages: list[Plain]) -> list[Plain]:
    """In turns, with the system text at the head of the first user message."""
    system, turns = _split_system(_in_turns(messages))
    if not system:
        return turns
    first = {"role": "user", "content": f"{system[0]['content']}\n\n{turns[0]['content']}"}
    return [first, *turns[1:]]


def _one_message(messages: list[Plain]) -> list[Plain]:
    return [{"role": "user", "content": _as_text(messages, answer=False)}]


_FORMS: tuple[Callable[[list[Plain]], list[Plain]], ...] = (
    _as_they_are,
    _in_turns,
    _without_system,
    _one_message,
)


def _as_text(messages: Iterable[Plain], answer: bool = True) -> str:
    lines = [f"{m['role'].capitalize()}: {m['content']}" for m in messages]
    return "\n\n".join([*lines, "Assistant:"] if answer else lines)


def _templates(tokenizer: Any) -> list[str]:
    """A tokenizer may have several by name."""
    found = getattr(tokenizer, "chat_template", None) or ""
    return [str(one) for one in found.values()] if isinstance(found, dict) else [str(found)]


def _end_of_turn(tokenizer: Any) -> int:
    """What the template puts right after an assistant's text, if that is a special token; else the tokenizer's
    end token. Qwen and others end a turn with another token than a document."""
    special = {int(token) for token in tokenizer.all_special_ids}
    special |= {
        int(t) for t, added in getattr(tokenizer, "added_tokens_decoder", {}).items() if added.special
    }
    marker = "zebra"
    if getattr(tokenizer, "chat_template", None):
        try:
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": "?"}, {"role": "assistant", "content": marker}], tokenize=False
            )
            tail = tokenizer.encode(text[text.rindex(marker) + len(marker) :], add_special_tokens=False)
            found = next((int(token) for token in tail if int(token) in special), None)
            if found is not None:
                return found
        except Exception:  # noqa: S110 — a template that refuses this is met again, and reported, in _render
            pass
    if tokenizer.eos_token_id is None:
        raise ModelError("The tokenizer has no end token, so answers could never end. Choose a chat model.")
    return int(tokenizer.eos_token_id)
