"""One client library asks one question: ``library_calls.py LIBRARY URL whole|stream``. Prints the text that the library gives back.

Runs in an environment in which that library is installed, and imports nothing of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

QUESTION = "Tell me about the otter."
MODEL, KEY = "clawback", "none"


def openai(url: str, stream: bool) -> str:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key=KEY)
    made: Any = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": QUESTION}], stream=stream
    )
    return (
        "".join(c.choices[0].delta.content or "" for c in made if c.choices)
        if stream
        else made.choices[0].message.content
    )


def openai_responses(url: str, stream: bool) -> str:
    from openai import OpenAI

    made: Any = OpenAI(base_url=f"{url}/v1", api_key=KEY).responses.create(
        model=MODEL, input=QUESTION, stream=stream
    )
    return (
        "".join(e.delta for e in made if e.type == "response.output_text.delta")
        if stream
        else made.output_text
    )


def anthropic(url: str, stream: bool) -> str:
    from anthropic import Anthropic

    client, asked = (
        Anthropic(base_url=url, api_key=KEY),
        {"model": MODEL, "max_tokens": 40, "messages": [{"role": "user", "content": QUESTION}]},
    )
    if stream:
        with client.messages.stream(**asked) as answer:
            return "".join(answer.text_stream)
    return client.messages.create(**asked).content[0].text


def litellm(url: str, stream: bool) -> str:
    import litellm

    made = litellm.completion(model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key=KEY, messages=[{"role": "user", "content": QUESTION}], stream=stream)  # fmt: skip
    return (
        "".join(c.choices[0].delta.content or "" for c in made) if stream else made.choices[0].message.content
    )


def langchain_openai(url: str, stream: bool) -> str:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
    return (
        "".join(str(c.content) for c in model.stream(QUESTION))
        if stream
        else str(model.invoke(QUESTION).content)
    )


def langchain_anthropic(url: str, stream: bool) -> str:
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model=MODEL, base_url=url, api_key=KEY, max_tokens=40)
    pieces = [c.content for c in model.stream(QUESTION)] if stream else [model.invoke(QUESTION).content]
    return "".join(p if isinstance(p, str) else "".join(b.get("text", "") for b in p) for p in pieces)


def pydantic_ai(url: str, stream: bool) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=KEY)))
    return agent.run_stream_sync(QUESTION).get_output() if stream else agent.run_sync(QUESTION).output


def agents_sdk(url: str, stream: bool) -> str:
    import asyncio

    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    agent = Agent(
        name="a",
        model=OpenAIChatCompletionsModel(
            model=MODEL, openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)
        ),
    )

    async def streamed() -> str:
        run = Runner.run_streamed(agent, QUESTION)
        async for _ in run.stream_events():
            pass
        return str(run.final_output)

    return asyncio.run(streamed()) if stream else str(Runner.run_sync(agent, QUESTION).final_output)


def llama_index(url: str, stream: bool) -> str:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(model=MODEL, api_base=f"{url}/v1", api_key=KEY, is_chat_model=True)
    asked = [ChatMessage(role="user", content=QUESTION)]
    return (
        "".join(c.delta or "" for c in model.stream_chat(asked))
        if stream
        else str(model.chat(asked).message.content)
    )


def smolagents(url: str, stream: bool) -> str:
    from smolagents import OpenAIModel
    from smolagents.models import ChatMessage

    model = OpenAIModel(model_id=MODEL, api_base=f"{url}/v1", api_key=KEY)
    asked = [ChatMessage(role="user", content=[{"type": "text", "text": QUESTION}])]
    return (
        "".join(c.content or "" for c in model.generate_stream(asked))
        if stream
        else str(model.generate(asked).content)
    )


def instructor(url: str, stream: bool) -> str:
    import instructor
    from openai import OpenAI

    client = instructor.from_openai(OpenAI(base_url=f"{url}/v1", api_key=KEY), mode=instructor.Mode.MD_JSON)
    asked: Any = {
        "model": MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "stream": stream,
        "response_model": None,
    }
    made = client.chat.completions.create(**asked)
    return (
        "".join(c.choices[0].delta.content or "" for c in made if c.choices)
        if stream
        else made.choices[0].message.content
    )


def llm(url: str, stream: bool) -> str:
    from llm.default_plugins.openai_models import Chat

    model = Chat(MODEL, model_name=MODEL, api_base=f"{url}/v1", key=KEY)
    made = model.prompt(QUESTION, stream=stream, key=KEY)
    return "".join(made)


LIBRARIES: dict[str, tuple[str, Callable[[str, bool], str]]] = {
    "openai": ("openai", openai),
    "openai (Responses)": ("openai", openai_responses),
    "anthropic": ("anthropic", anthropic),
    "litellm": ("litellm", litellm),
    "langchain-openai": ("langchain_openai", langchain_openai),
    "langchain-anthropic": ("langchain_anthropic", langchain_anthropic),
    "pydantic-ai": ("pydantic_ai", pydantic_ai),
    "openai-agents": ("agents", agents_sdk),
    "llama-index (openai-like)": ("llama_index", llama_index),
    "smolagents": ("smolagents", smolagents),
    "instructor": ("instructor", instructor),
    "llm": ("llm", llm),
}
"""Name → the module that it is, and the call."""


if __name__ == "__main__":
    os.environ.update(
        {
            "DISABLE_TELEMETRY": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
    )
    print(LIBRARIES[sys.argv[1]][1](sys.argv[2], sys.argv[3] == "stream"), end="")
