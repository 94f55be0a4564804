"""One client library asks its questions: ``library_calls.py LIBRARY URL KEY [CASE…]``. Prints what it gives back, a JSON object by case.

Runs in an environment in which that library is installed, and imports nothing of ours. A case that a library does not offer is left out.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

MODEL = "clawback"
QUESTIONS = {
    "whole": "Tell me about the otter.",
    "stream": "Tell me about the fox.",
    "tools": "How is the weather in Vienna?",
    "forced": "Describe the newt by a call.",
    "schema": "Describe the newt.",
    "picture": "What is in this image?",
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
PNG_URL = f"data:image/png;base64,{PNG}"
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}},
    "required": ["city"],
    "additionalProperties": False,
}
Ask = Callable[[str], Any]


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city.
    """
    return f"sunny in {city}"


def animal() -> Any:
    from pydantic import BaseModel, ConfigDict

    class Animal(BaseModel):
        """An animal."""

        model_config = ConfigDict(extra="forbid")
        name: Literal["otter", "newt", "fox"]
        legs: Literal[0, 2, 4]
        kind: Literal["mammal", "bird", "fish"]

    return Animal


def asked(question: str, **more: Any) -> list[Any]:
    return [{"role": "user", "content": question, **more}]


def with_picture(question: str) -> list[Any]:
    return [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": question},
                {"type": "image_url", "image_url": {"url": PNG_URL}},
            ],
        }
    ]


TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": CITY},
}
ANIMAL_TOOL = {"type": "function", "function": {"name": "animal", "description": "An animal."}}


def animal_tool() -> dict[str, Any]:
    schema = animal().model_json_schema()
    return {"type": "function", "function": {**ANIMAL_TOOL["function"], "parameters": schema}}  # type: ignore[dict-item]


def chat_cases(create: Callable[..., Any]) -> dict[str, Ask]:
    """Of a library whose calls have the form of OpenAI's chat completions."""

    def stream(q: str) -> str:
        return "".join(
            c.choices[0].delta.content or "" for c in create(messages=asked(q), stream=True) if c.choices
        )

    def tools(q: str) -> str:
        talk = asked(q)
        message = create(messages=talk, tools=[TOOL]).choices[0].message
        [call] = message.tool_calls
        talk += [message.model_dump(exclude_none=True)]
        result = weather(**json.loads(call.function.arguments))
        talk += [{"role": "tool", "tool_call_id": call.id, "content": result}]
        return str(create(messages=talk, tools=[TOOL]).choices[0].message.content)

    def forced(q: str) -> Any:
        choice = {"type": "function", "function": {"name": "animal"}}
        message = create(messages=asked(q), tools=[animal_tool()], tool_choice=choice).choices[0].message
        return json.loads(message.tool_calls[0].function.arguments)

    return {
        "whole": lambda q: create(messages=asked(q)).choices[0].message.content,
        "stream": stream,
        "tools": tools,
        "forced": forced,
        "picture": lambda q: create(messages=with_picture(q)).choices[0].message.content,
    }


def openai_chat(url: str, key: str) -> dict[str, Ask]:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)

    def create(**body: Any) -> Any:
        return client.chat.completions.create(model=MODEL, **body)

    def schema(q: str) -> Any:
        made = client.chat.completions.parse(model=MODEL, messages=asked(q), response_format=animal())
        return made.choices[0].message.parsed.model_dump()

    return chat_cases(create) | {"schema": schema}


def openai_responses(url: str, key: str) -> dict[str, Ask]:
    from openai import OpenAI

    responses: Any = OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0).responses
    tool = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}

    def tools(q: str) -> str:
        talk = asked(q)
        [call] = responses.create(model=MODEL, input=talk, tools=[tool], store=False).output
        result = weather(**json.loads(call.arguments))
        talk += [
            call.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": call.call_id, "output": result},
        ]
        return str(responses.create(model=MODEL, input=talk, tools=[tool], store=False).output_text)

    def forced(q: str) -> Any:
        function = animal_tool()["function"]
        made = responses.create(model=MODEL, input=q, tools=[{"type": "function", "strict": False, **function}], tool_choice="required")  # fmt: skip
        return json.loads(made.output[0].arguments)

    def picture(q: str) -> str:
        parts = [{"type": "input_text", "text": q}, {"type": "input_image", "image_url": PNG_URL}]
        return str(responses.create(model=MODEL, input=[{"role": "user", "content": parts}]).output_text)

    def stream(q: str) -> str:
        with responses.stream(model=MODEL, input=q) as events:
            text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
            assert text == events.get_final_response().output_text
        return text

    return {
        "whole": lambda q: responses.create(model=MODEL, input=q).output_text,
        "stream": stream,
        "tools": tools,
        "forced": forced,
        "schema": lambda q: responses.parse(
            model=MODEL, input=q, text_format=animal()
        ).output_parsed.model_dump(),
        "picture": picture,
    }


def anthropic(url: str, key: str) -> dict[str, Ask]:
    from anthropic import Anthropic

    messages: Any = Anthropic(base_url=url, api_key=key, max_retries=0).messages
    more: Any = {"model": MODEL, "max_tokens": 200}
    tool = {"name": "weather", "input_schema": CITY}

    def stream(q: str) -> str:
        with messages.stream(**more, messages=asked(q)) as answer:
            return "".join(answer.text_stream)

    def tools(q: str) -> str:
        talk = asked(q)
        with messages.stream(**more, messages=talk, tools=[tool]) as answer:
            made = answer.get_final_message()
        [call] = made.content
        result = {"type": "tool_result", "tool_use_id": call.id, "content": weather(**call.input)}
        talk += [
            {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in made.content]},
            {"role": "user", "content": [result]},
        ]
        return str(messages.create(**more, messages=talk, tools=[tool]).content[0].text)

    def forced(q: str) -> Any:
        choice = {"type": "tool", "name": "animal"}
        tool = {"name": "animal", "input_schema": animal().model_json_schema()}
        return messages.create(**more, messages=asked(q), tools=[tool], tool_choice=choice).content[0].input

    def picture(q: str) -> str:
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        parts = [{"type": "image", "source": source}, {"type": "text", "text": q}]
        return str(messages.create(**more, messages=[{"role": "user", "content": parts}]).content[0].text)

    def schema(q: str) -> Any:
        return messages.parse(**more, messages=asked(q), output_format=animal()).parsed_output.model_dump()

    return {
        "whole": lambda q: messages.create(**more, messages=asked(q)).content[0].text,
        "stream": stream,
        "tools": tools,
        "forced": forced,
        "schema": schema,
        "picture": picture,
    }


def litellm(url: str, key: str) -> dict[str, Ask]:
    import litellm

    def create(**body: Any) -> Any:
        return litellm.completion(
            model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key=key, num_retries=0, max_retries=0, **body
        )

    def schema(q: str) -> Any:
        return json.loads(create(messages=asked(q), response_format=animal()).choices[0].message.content)

    return chat_cases(create) | {"schema": schema}


def langchain_cases(model: Any) -> dict[str, Ask]:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    can_call = model.bind_tools([tool(weather)])

    def text(content: Any) -> str:
        return content if isinstance(content, str) else "".join(b.get("text", "") for b in content)

    def tools(q: str) -> str:
        talk: list[Any] = [HumanMessage(q)]
        talk.append(can_call.invoke(talk))
        [call] = talk[-1].tool_calls
        talk.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))
        return text(can_call.invoke(talk).content)

    def forced(q: str) -> Any:
        return model.with_structured_output(animal(), method="function_calling").invoke(q).model_dump()

    def picture(q: str) -> str:
        parts = [
            {"type": "text", "text": q},
            {"type": "image", "base64": PNG, "mime_type": "image/png"},
        ]
        return text(model.invoke([HumanMessage(parts)]).content)

    return {
        "whole": lambda q: text(model.invoke(q).content),
        "stream": lambda q: "".join(text(c.content) for c in model.stream(q)),
        "tools": tools,
        "forced": forced,
        "schema": lambda q: (
            model.with_structured_output(animal(), method="json_schema").invoke(q).model_dump()
        ),
        "picture": picture,
    }


def langchain_openai(url: str, key: str) -> dict[str, Ask]:
    from langchain_openai import ChatOpenAI

    return langchain_cases(ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=key, max_retries=0))


def langchain_anthropic(url: str, key: str) -> dict[str, Ask]:
    from langchain_anthropic import ChatAnthropic

    return langchain_cases(
        ChatAnthropic(model=MODEL, base_url=url, api_key=key, max_tokens=200, max_retries=0)
    )


def langchain_ollama(url: str, key: str) -> dict[str, Ask]:
    from langchain_ollama import ChatOllama

    headers = {"headers": {"Authorization": f"Bearer {key}"}}
    cases = langchain_cases(ChatOllama(model=MODEL, base_url=url, client_kwargs=headers))
    del cases["forced"]  # Ollama's API has no way to require a call
    return cases


def pydantic_ai(url: str, key: str) -> dict[str, Ask]:
    from pydantic_ai import Agent, BinaryContent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key))

    async def streamed(q: str) -> str:
        async with Agent(model).run_stream(q) as run:
            return "".join([piece async for piece in run.stream_text(delta=True)])

    def picture(q: str) -> str:
        content = BinaryContent(data=base64.b64decode(PNG), media_type="image/png")
        return str(Agent(model).run_sync([q, content]).output)

    return {
        "whole": lambda q: Agent(model).run_sync(q).output,
        "stream": lambda q: asyncio.run(streamed(q)),
        "tools": lambda q: Agent(model, tools=[weather]).run_sync(q).output,
        "forced": lambda q: Agent(model, output_type=animal()).run_sync(q).output.model_dump(),
        "schema": lambda q: Agent(model, output_type=NativeOutput(animal())).run_sync(q).output.model_dump(),
        "picture": picture,
    }


def agents_sdk(url: str, key: str) -> dict[str, Ask]:
    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        Runner,
        StopAtTools,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    def run(question: Any, **more: Any) -> Any:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        return Runner.run_sync(Agent(name="a", model=model, **more), question).final_output

    async def streamed(q: str) -> str:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        running = Runner.run_streamed(Agent(name="a", model=model), q)
        pieces = [
            getattr(e.data, "delta", "")
            async for e in running.stream_events()
            if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"
        ]
        assert "".join(pieces) == running.final_output
        return "".join(pieces)

    def forced(q: str) -> Any:
        def animal(
            name: Literal["otter", "newt", "fox"],
            legs: Literal[0, 2, 4],
            kind: Literal["mammal", "bird", "fish"],
        ) -> str:
            """An animal."""
            return json.dumps({"name": name, "legs": legs, "kind": kind})

        settings = ModelSettings(tool_choice="required")
        stop = StopAtTools(stop_at_tool_names=["animal"])
        return json.loads(
            run(q, tools=[function_tool(animal)], model_settings=settings, tool_use_behavior=stop)
        )

    def picture(q: str) -> str:
        parts = [{"type": "input_text", "text": q}, {"type": "input_image", "image_url": PNG_URL}]
        return str(run([{"role": "user", "content": parts}]))

    return {
        "whole": run,
        "stream": lambda q: asyncio.run(streamed(q)),
        "tools": lambda q: run(q, tools=[function_tool(weather)]),
        "forced": forced,
        "schema": lambda q: run(q, output_type=animal()).model_dump(),
        "picture": picture,
    }


def llama_index(url: str, key: str) -> dict[str, Ask]:
    from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    def model(**more: Any) -> Any:
        options = {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0}
        return OpenAILike(model=MODEL, api_base=f"{url}/v1", api_key=key, **options, **more)

    tool = FunctionTool.from_defaults(weather)

    def talk(q: str) -> list[Any]:
        return [ChatMessage(role="user", content=q)]

    def tools(q: str) -> str:
        history = talk(q)
        made = model().chat_with_tools([tool], chat_history=history)
        [call] = model().get_tool_calls_from_response(made)
        result = weather(**call.tool_kwargs)
        history += [
            made.message,
            ChatMessage(role="tool", content=result, additional_kwargs={"tool_call_id": call.tool_id}),
        ]
        return str(model().chat_with_tools([tool], chat_history=history).message.content)

    def picture(q: str) -> str:
        image = ImageBlock(image=base64.b64decode(PNG), image_mimetype="image/png")
        return str(
            model().chat([ChatMessage(role="user", blocks=[TextBlock(text=q), image])]).message.content
        )

    return {
        "whole": lambda q: model().chat(talk(q)).message.content,
        "stream": lambda q: "".join(c.delta or "" for c in model().stream_chat(talk(q))),
        "tools": tools,
        "forced": lambda q: model().as_structured_llm(animal()).chat(talk(q)).raw.model_dump(),
        "schema": lambda q: model(should_use_structured_outputs=True).as_structured_llm(animal()).chat(talk(q)).raw.model_dump(),
        "picture": picture,
    }  # fmt: skip


def smolagents(url: str, key: str) -> dict[str, Ask]:
    from smolagents import OpenAIModel, tool
    from smolagents.models import ChatMessage, MessageRole

    model = OpenAIModel(model_id=MODEL, api_base=f"{url}/v1", api_key=key, client_kwargs={"max_retries": 0})

    def talk(q: str, *more: dict[str, Any]) -> list[Any]:
        return [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": q}, *more])]

    def picture(q: str) -> str:
        import io

        from PIL import Image

        image = Image.open(io.BytesIO(base64.b64decode(PNG)))
        return str(model.generate(talk(q, {"type": "image", "image": image})).content)

    def schema(q: str) -> Any:
        layout = {"name": "animal", "strict": True, "schema": animal().model_json_schema()}
        made = model.generate(talk(q), response_format={"type": "json_schema", "json_schema": layout})
        return json.loads(made.content)

    def tools(q: str) -> str:
        talked: list[Any] = talk(q)
        made = model.generate(talked, tools_to_call_from=[tool(weather)])
        [call] = made.tool_calls
        given = call.function.arguments
        result = weather(**(json.loads(given) if isinstance(given, str) else given))
        talked += [
            ChatMessage(role=MessageRole.ASSISTANT, content=[{"type": "text", "text": f"Calling {call.function.name}"}]),
            ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": f"Observation: {result}"}]),
        ]  # fmt: skip
        return str(model.generate(talked).content)

    def forced(q: str) -> Any:
        # Its agents require a call in every step.
        def animal(swims: bool) -> str:
            """An animal.

            Args:
                swims: Whether it swims.
            """
            return f"swims: {swims}"

        made = model.generate(talk(q), tools_to_call_from=[tool(animal)], max_tokens=150)
        given = made.tool_calls[0].function.arguments
        return json.loads(given) if isinstance(given, str) else given

    return {
        "whole": lambda q: model.generate(talk(q)).content,
        "stream": lambda q: "".join(c.content or "" for c in model.generate_stream(talk(q))),
        "tools": tools,
        "forced": forced,
        "schema": schema,
        "picture": picture,
    }


def instructor(url: str, key: str) -> dict[str, Ask]:
    import instructor
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)

    def create(mode: Any, question: Any, **more: Any) -> Any:
        made = instructor.from_openai(client, mode=mode)
        talk = question if isinstance(question, list) else asked(question)
        return made.chat.completions.create(model=MODEL, messages=talk, **{"max_retries": 0, **more})

    def plain(q: Any) -> str:
        return str(create(instructor.Mode.TOOLS, q, response_model=None).choices[0].message.content)

    def stream(q: str) -> str:
        chunks = create(instructor.Mode.TOOLS, q, response_model=None, stream=True)
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

    return {
        "whole": plain,
        "stream": stream,
        "forced": lambda q: create(instructor.Mode.TOOLS, q, response_model=animal()).model_dump(),
        "schema": lambda q: create(instructor.Mode.JSON_SCHEMA, q, response_model=animal()).model_dump(),
        "picture": lambda q: plain(with_picture(q)),
    }


def ollama(url: str, key: str) -> dict[str, Ask]:
    from ollama import Client

    client = Client(host=url, headers={"Authorization": f"Bearer {key}"})

    def tools(q: str) -> str:
        talk = asked(q)
        message = client.chat(model=MODEL, messages=talk, tools=[weather]).message
        [call] = message.tool_calls or []
        talk += [
            message,
            {"role": "tool", "tool_name": "weather", "content": weather(**call.function.arguments)},
        ]
        return str(client.chat(model=MODEL, messages=talk, tools=[weather]).message.content)

    def schema(q: str) -> Any:
        made = client.chat(model=MODEL, messages=asked(q), format=animal().model_json_schema())
        return json.loads(made.message.content or "")

    return {
        "whole": lambda q: client.chat(model=MODEL, messages=asked(q)).message.content,
        "stream": lambda q: "".join(c.message.content or "" for c in client.chat(model=MODEL, messages=asked(q), stream=True)),
        "tools": tools,
        "schema": schema,
        "picture": lambda q: client.chat(model=MODEL, messages=asked(q, images=[PNG])).message.content,
    }  # fmt: skip


def llm(url: str, key: str) -> dict[str, Ask]:
    import llm as library
    from llm.default_plugins.openai_models import Chat

    able = {"vision": True, "supports_schema": True, "supports_tools": True}
    model = Chat(MODEL, model_name=MODEL, api_base=f"{url}/v1", key=key, **able)
    attachment = library.Attachment(content=base64.b64decode(PNG), type="image/png")
    return {
        "whole": lambda q: model.prompt(q, stream=False, key=key).text(),
        "stream": lambda q: "".join(model.prompt(q, stream=True, key=key)),
        "tools": lambda q: model.chain(q, tools=[weather], stream=False, key=key).text(),
        "schema": lambda q: json.loads(model.prompt(q, schema=animal(), stream=False, key=key).text()),
        "picture": lambda q: model.prompt(q, attachments=[attachment], stream=False, key=key).text(),
    }


LIBRARIES: dict[str, tuple[str, Callable[[str, str], dict[str, Ask]]]] = {
    "openai": ("openai", openai_chat),
    "openai (Responses)": ("openai", openai_responses),
    "anthropic": ("anthropic", anthropic),
    "litellm": ("litellm", litellm),
    "langchain-openai": ("langchain-openai", langchain_openai),
    "langchain-anthropic": ("langchain-anthropic", langchain_anthropic),
    "langchain-ollama": ("langchain-ollama", langchain_ollama),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
    "openai-agents": ("openai-agents", agents_sdk),
    "llama-index (openai-like)": ("llama-index-llms-openai-like", llama_index),
    "smolagents": ("smolagents", smolagents),
    "instructor": ("instructor", instructor),
    "ollama": ("ollama", ollama),
    "llm": ("llm", llm),
}
"""Name → the distribution that it is, and what makes its cases."""


def result_of(case: Ask, question: str) -> dict[str, Any]:
    try:
        return {"result": case(question)}
    except Exception as error:  # whatever a library raises is what its user sees
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    os.environ.update(
        {
            "DISABLE_TELEMETRY": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LLM_USER_PATH": os.environ.get("HOME", "."),
        }
    )
    from importlib.metadata import version

    distribution, cases_of = LIBRARIES[sys.argv[1]]
    cases = cases_of(sys.argv[2], sys.argv[3])
    wanted = sys.argv[4:] or QUESTIONS
    results = {name: result_of(cases[name], QUESTIONS[name]) for name in wanted if name in cases}
    print(json.dumps({"version": version(distribution), "cases": results}))
