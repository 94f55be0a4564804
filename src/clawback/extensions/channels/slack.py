"""The Slack bot, by Bolt in Socket Mode: events come over a connection that the bot opens, so no port is opened here.

In a channel the bot answers in the thread of the message that mentions it; a thread is a conversation of its
own.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clawback import config
from clawback.errors import ClawbackError
from clawback.extensions.channels.channel import Desk, Heard, log, sign_of
from clawback.feedback import command

if TYPE_CHECKING:
    from clawback.records import JsonObject

LIBRARY = "slack_bolt"
TOKENS = {"token": "xoxb-", "app_token": "xapp-"}
LIMIT = 3500
NOT_HERE = (
    "A slash command does not say which answer it means: react to the answer with 👍 or 👎, "
    "or write `rl: good` to me in its thread."
)


async def run(desk: Desk, settings: config.SlackSection, tokens: Mapping[str, str]) -> None:
    from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
    from slack_bolt.app.async_app import AsyncApp
    from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
    from slack_sdk.web.async_client import AsyncWebClient

    web = AsyncWebClient(token=tokens["token"], base_url=f"{settings.api.rstrip('/')}/")
    web.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=3))
    me = await greeted(web, settings)
    app = AsyncApp(client=web, logger=log)
    ears = Ears(desk, web, me)
    app.event("message")(ears.message)
    app.event("app_mention")(ears.message)
    app.event("reaction_added")(ears.reacted)
    app.event("reaction_removed")(ears.unreacted)
    app.command("/rl")(ears.ordered)
    handler = AsyncSocketModeHandler(app, tokens["app_token"], logger=log)
    try:
        # The first time we ask ourselves, to hear of a refusal: the library would go on asking.
        handler.client.wss_uri = await handler.client.issue_new_wss_url()
        await handler.connect_async()
        log.info("slack: listening as %s", me)
        await asyncio.Event().wait()
    except Exception as error:
        raise ClawbackError(
            f"Slack does not let us listen with {settings.app_token}: {why(error)}."
        ) from None
    finally:
        await desk.close()
        await handler.close_async()


async def greeted(web: Any, settings: config.SlackSection) -> str:
    """The bot's own id. Raises ``ClawbackError``."""
    from slack_sdk.errors import SlackApiError

    try:
        return str((await web.auth_test())["user_id"])
    except SlackApiError as error:
        raise ClawbackError(f"Slack does not accept the token in {settings.token}: {why(error)}.") from None
    except Exception as error:
        raise ClawbackError(f"Slack cannot be reached ({type(error).__name__}).") from None


def why(error: Exception) -> str:
    """Slack's own word for it (``invalid_auth``)."""
    response = getattr(error, "response", None)
    return str(response.get("error", "?")) if response is not None else type(error).__name__


class Ears:
    """The handlers that Bolt calls. Bolt inspects the names of their arguments."""

    def __init__(self, desk: Desk, web: Any, me: str) -> None:
        self.desk, self.web, self.me = desk, web, me

    async def message(self, event: JsonObject) -> None:
        """A direct message, a mention, or both of one message."""
        if event.get("bot_id") or event.get("subtype") or not event.get("user") or not event.get("text"):
            return
        channel, ts, thread = event["channel"], event["ts"], event.get("thread_ts", "")
        direct = channel.startswith("D")
        mention = f"<@{self.me}>"
        if not direct:
            thread = thread or ts

        async def send(piece: str) -> str:
            sent = await self.web.chat_postMessage(
                channel=channel,
                # Signs that Slack reads as orders (`<!channel>`) are only text, for a model wrote them.
                text=html.escape(piece, quote=False),
                thread_ts=thread or None,
                mrkdwn=False,
                # To fetch a preview tells the address in it to whoever answers there.
                unfurl_links=False,
                unfurl_media=False,
            )
            return f"{channel}:{sent['ts']}"

        await self.desk.hear(
            Heard(
                session=f"slack:{channel}{f':{thread}' if thread else ''}",
                id=f"{channel}:{ts}",
                by=event["user"],
                text=html.unescape(event["text"].replace(mention, "", 1)).strip(),
                direct=direct,
                mentioned=mention in event["text"],
                under=f"{channel}:{thread}" if thread and thread != ts else "",
            ),
            send,
        )

    async def ordered(self, ack: Any, body: JsonObject) -> None:
        """``/rl good``: about the last answer of a direct conversation."""
        direct = body["channel_id"].startswith("D")
        text = f"/rl {html.unescape(body.get('text', ''))}"
        heard = Heard(
            f"slack:{body['channel_id']}", body["trigger_id"], body["user_id"], text, direct, mentioned=True
        )
        said: list[str] = []

        async def send(piece: str) -> str:
            said.append(html.escape(piece, quote=False))
            return ""

        words = command.parse(text) or ["status"]
        if direct or words[0] in (*command.ASKS, *command.ORDERS):
            await self.desk.hear(heard, send)
        elif self.desk.welcomes(heard.by):
            said.append(NOT_HERE)
        await (ack("\n".join(said)) if said else ack())

    async def reacted(self, event: JsonObject) -> None:
        await self._react(event, on=True)

    async def unreacted(self, event: JsonObject) -> None:
        await self._react(event, on=False)

    async def _react(self, event: JsonObject, *, on: bool) -> None:
        item = event.get("item", {})
        if item.get("type") != "message" or event.get("item_user", self.me) != self.me:
            return
        await self.desk.react(
            f"{item['channel']}:{item['ts']}",
            event["user"],
            sign_of(event["reaction"]),
            on,
            direct=item["channel"].startswith("D"),
            at=float(event["event_ts"]),
        )
