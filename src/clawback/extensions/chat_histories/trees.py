"""Conversations as chat programs keep them: messages in a tree, of which one branch is shown.

A turn is the last message of an answer, with all that led to it. **Free preferences**, as guesses (`implicit`, which never outweigh a rating):

- of several answers to one message the branch that the person went on with, or that is shown, is better than each other one;
- a question that is asked once more says that the answer before did not help;
- so does a short message that begins with a no ("no, shorter").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clawback.extensions.data_sets.entries import ASKED_AGAIN, CORRECTED, KEPT, Entry, FileReading, digest
from clawback.feedback.implicit import asked_again, corrected
from clawback.records import Ending, Feedback, JsonObject, Message, Turn, newest_messages, text_of

CONTEXT_CHARACTERS = 400_000
"""How much of a conversation is kept with an answer: its newest messages, and the system prompt."""


@dataclass(slots=True)
class Node:
    """One message of a conversation. ``feedback`` is what was said of it (``turn_id`` 0)."""

    id: str
    parent: str | None
    role: str
    """``user``, ``assistant``, ``system``, ``tool``; "" for a node without a message."""
    content: Any = ""
    model: str = ""
    at: float = 0.0
    thinking: str = ""
    ending: Ending = ""
    calls: list[JsonObject] = field(default_factory=list)
    """Tools that it calls, as OpenAI writes them."""
    call_id: str = ""
    feedback: list[Feedback] = field(default_factory=list)
    siblings_worse: bool = False
    """Whoever liked it was shown its siblings, too, and preferred it."""
    siblings_better: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content).strip()

    @property
    def message(self) -> Message:
        message: JsonObject = {"role": self.role, "content": self.content}
        if self.calls:
            message["tool_calls"] = self.calls
        if self.role == "tool":
            message["tool_call_id"] = self.call_id
        return message


@dataclass(slots=True)
class MessageTree:
    """All messages of a conversation. Without ``current`` its last message is the one that is shown."""

    id: str
    agent: str
    nodes: list[Node]
    current: str = ""
    system: str = ""
    cwd: str = ""
    tools: list[Any] = field(default_factory=list)


def chain(nodes: Sequence[Node]) -> list[Node]:
    """The same messages, each the child of the one before it."""
    for previous, node in itertools.pairwise(nodes):
        node.parent = previous.id
    if nodes:
        nodes[0].parent = None
    return list(nodes)


def step_nodes(node: Node, steps: Sequence[Message]) -> list[Node]:
    """The nodes of a message of several steps, each below the one before it. The last with words has the name of the node, and what was said of it."""
    spoken = [
        place for place, m in enumerate(steps) if m["role"] == node.role and text_of(m["content"]).strip()
    ]
    last = spoken[-1] if spoken else len(steps) - 1
    nodes: list[Node] = []
    for place, message in enumerate(steps):
        step = Node(f"{node.id}:{place}", node.parent, message["role"], at=node.at)
        if place == last:
            step = replace(node, role=message["role"])
        step.content, step.calls = message["content"], list(message.get("tool_calls") or ())
        step.call_id = str(message.get("tool_call_id") or "")
        step.parent = nodes[-1].id if nodes else node.parent
        nodes.append(step)
    return nodes


class _Tree:
    def __init__(self, conversation: MessageTree) -> None:
        self.conversation = conversation
        self.nodes = {node.id: node for node in conversation.nodes}
        self.children: dict[str | None, list[Node]] = {}
        for node in conversation.nodes:
            known = node.parent if node.parent in self.nodes and node.parent != node.id else None
            self.children.setdefault(known, []).append(node)
        last = conversation.current if conversation.current in self.nodes else ""
        self.shown = set(self.path(last or self._last()))

    def path(self, name: str) -> list[str]:
        """Names of the messages from the first one to this one."""
        names: list[str] = []
        seen: set[str] = set()
        while name in self.nodes and name not in seen:
            seen.add(name)
            names.append(name)
            name = self.nodes[name].parent or ""
        return names[::-1]

    def _last(self) -> str:
        """The end of the branch of the newest children."""
        name, seen = "", set()
        listed = self.children.get(None, [])
        while listed and listed[-1].id not in seen:
            name = listed[-1].id
            seen.add(name)
            listed = self.children.get(name, [])
        return name

    def answers(self) -> list[Node]:
        """Last messages of answers: with words, and without more words of the assistant before the user's next message."""
        answers = []
        for node in self.conversation.nodes:
            asked = node.role == "assistant" and self.question_before(node) is not None
            if asked and node.text and not self._continues(node):
                answers.append(node)
        return answers

    def _continues(self, node: Node) -> bool:
        """Whether the assistant says more, without a word of the user's."""
        waiting, seen = list(self.children.get(node.id, [])), {node.id}
        while waiting:
            child = waiting.pop()
            if child.id in seen or child.role == "user":
                continue
            seen.add(child.id)
            if child.role == "assistant" and child.text:
                return True
            waiting += self.children.get(child.id, [])
        return False

    def answer_below(self, node: Node) -> Node | None:
        """The answer that a branch gives, by the way that is shown or the newest."""
        seen: set[str] = set()
        best = node if node.role == "assistant" and node.text else None
        while node.id not in seen:
            seen.add(node.id)
            following = [child for child in self.children.get(node.id, []) if child.role != "user"]
            if not following:
                return best
            node = next((child for child in following if child.id in self.shown), following[-1])
            best = node if node.role == "assistant" and node.text else best
        return best

    def went_on(self, node: Node) -> bool:
        """Whether the person wrote something after this answer."""
        return any(child.role == "user" for child in self.children.get(node.id, []))

    def question_before(self, node: Node) -> Node | None:
        return next((self.nodes[n] for n in self.path(node.id)[-2::-1] if self.nodes[n].role == "user"), None)

    def question_after(self, node: Node) -> Node | None:
        """What the person wrote after this answer, in the branch that is shown if there are several."""
        listed = [child for child in self.children.get(node.id, []) if child.role == "user" and child.text]
        return next((child for child in listed if child.id in self.shown), listed[0] if listed else None)


def entries(conversation: MessageTree, reading: FileReading) -> Iterator[Entry]:
    """One entry with all answers of the conversation. Raises ``BadLine`` where there are none."""
    tree = _Tree(conversation)
    answers = tree.answers()
    index = {node.id: place for place, node in enumerate(answers)}
    if not answers:
        reading.unread["conversations without an answer"] += 1
        return
    turns = tuple(_turn(tree, node) for node in answers)
    opinions: list[Feedback] = []
    for place, node in enumerate(answers):
        opinions += [_about(place, one, node, reading) for one in node.feedback]
        if reading.liked and not node.feedback:
            opinions.append(Feedback(place, "rating", 1.0, person=reading.person, created_at=node.at))
        opinions += _followed(place, node, tree)
    compared, sizes = _branches(tree, index, reading)
    again = [
        (len(answers[index[later.id]].text), len(node.text))
        for node in answers
        if (later := _asked_once_more(node, tree)) is not None and later.id in index
    ]
    yield Entry(turns, tuple(opinions + compared), regenerations=tuple(sizes + again))


def _about(index: int, opinion: Feedback, node: Node, reading: FileReading) -> Feedback:
    return replace(
        opinion,
        turn_id=index,
        person=opinion.person or reading.person,
        created_at=opinion.created_at or node.at,
    )


def _turn(tree: _Tree, node: Node) -> Turn:
    conversation = tree.conversation
    path = [tree.nodes[name] for name in tree.path(node.id)[:-1]]
    messages = _bounded(
        [
            n.message
            for n in path
            if n.role and (n.text or n.calls or n.role == "tool" or not isinstance(n.content, str))
        ]
    )
    if conversation.system and not any(m["role"] == "system" for m in messages):
        messages = [{"role": "system", "content": conversation.system}, *messages]
    if conversation.tools and messages:
        messages = [{**messages[0], "tools": conversation.tools}, *messages[1:]]
    following = tree.question_after(node)
    session = f"{conversation.agent}:{conversation.id}"
    name = node.id or digest(messages, node.text, "")
    return Turn(
        session=session,
        messages=tuple(messages),
        response=node.text,
        agent=conversation.agent,
        model=node.model,
        cwd=conversation.cwd,
        event_id=f"{session}:{name}",
        created_at=node.at,
        ending=node.ending,
        thinking=node.thinking,
        calls=tuple({"id": call["id"], **call["function"]} for call in node.calls),
        next_state=({"role": "user", "content": following.content},) if following else (),
    )


def _bounded(messages: list[Message]) -> list[Message]:
    """The newest messages that fit, and the system's, which stands before all."""
    newest = newest_messages(messages, CONTEXT_CHARACTERS)
    older = messages[: len(messages) - len(newest)]
    return [m for m in older if m["role"] == "system"][:1] + newest


def _followed(index: int, node: Node, tree: _Tree) -> list[Feedback]:
    """What the person's next message says of an answer without rating it."""
    question, following = tree.question_before(node), tree.question_after(node)
    if question is None or following is None:
        return []
    if asked_again(question.text, following.text):
        return [Feedback(index, "implicit", -1.0, person=ASKED_AGAIN, created_at=following.at)]
    if corrected(following.text):
        return [Feedback(index, "implicit", -1.0, following.text, person=CORRECTED, created_at=following.at)]
    return []


def _asked_once_more(node: Node, tree: _Tree) -> Node | None:
    """The answer to the same question, asked once more after this answer."""
    question, following = tree.question_before(node), tree.question_after(node)
    if question is None or following is None or not asked_again(question.text, following.text):
        return None
    return tree.answer_below(following)


def _branches(
    tree: _Tree, index: dict[str, int], reading: FileReading
) -> tuple[list[Feedback], list[tuple[int, int]]]:
    """Comparisons between answers to one message, and the sizes of what was kept and what was not."""
    compared: list[Feedback] = []
    sizes: list[tuple[int, int]] = []
    for listed in tree.children.values():
        branches = [
            (node, answer)
            for node in listed
            if node.role != "user" and (answer := tree.answer_below(node)) is not None
        ]
        branches = [(node, answer) for node, answer in branches if answer.id in index]
        if len(branches) < 2:
            continue
        compared += _outright(branches, index, reading)
        chosen = _kept_answer(branches, tree)
        for node, answer in branches if chosen else []:
            if chosen is None or answer is chosen or answer.text == chosen.text or node.id == chosen.id:
                continue
            compared.append(
                Feedback(
                    index[chosen.id],
                    "implicit",
                    1.0,
                    other_turn_id=index[answer.id],
                    person=KEPT,
                    created_at=chosen.at,
                )
            )
            sizes.append((len(chosen.text), len(answer.text)))
    return compared, sizes


def _kept_answer(branches: list[tuple[Node, Node]], tree: _Tree) -> Node | None:
    """The answer of the branch that the person kept; None where nothing says which."""
    continued = [answer for _, answer in branches if tree.went_on(answer)]
    shown = [answer for node, answer in branches if node.id in tree.shown]
    if shown and (shown[0] in continued or not continued):
        return shown[0]
    return continued[0] if len(continued) == 1 else None


def _outright(
    branches: list[tuple[Node, Node]], index: dict[str, int], reading: FileReading
) -> list[Feedback]:
    """Preferences of somebody who rated one of several answers that were shown side by side."""
    comparisons = []
    for _, answer in branches:
        for _, other in branches:
            if answer is other or answer.text == other.text:
                continue
            if answer.siblings_worse or other.siblings_better:
                at = answer.feedback[0].created_at if answer.feedback else answer.at
                comparisons.append(
                    Feedback(
                        index[answer.id],
                        "preference",
                        1.0,
                        other_turn_id=index[other.id],
                        person=reading.person,
                        created_at=at,
                    )
                )
    return list(dict.fromkeys(comparisons))
