"""The Discord bot, by discord.py: events come over its gateway, so no port is opened.

Without the privileged "message content" intent the bot reads direct messages and messages that mention it (a
reply to one of its messages does), and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clawback import config
from clawback.errors import ClawbackError
from clawback.extensions.channels.channel import Desk, Heard, log, sign_of

if TYPE_CHECKING:
    import discord

LIBRARY = "discord"
TOKENS = {"token": ""}
LIMIT = 2000


async def run(desk: Desk, settings: config.DiscordSection, tokens: Mapping[str, str]) -> None:
    import aiohttp
    import discord

    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    intents.guild_reactions = intents.dm_reactions = True
    # The model writes what is posted: it must not call a whole server to its screens.
    client = discord.Client(
        intents=intents, allowed_mentions=discord.AllowedMentions.none(), max_messages=None
    )

    @client.event
    async def on_ready() -> None:
        log.info("discord: listening as %s", client.user)

    @client.event
    async def on_message(message: discord.Message) -> None:
        await hear(desk, client, message)

    @client.event
    async def on_raw_reaction_add(event: discord.RawReactionActionEvent) -> None:
        await react(desk, client, event, on=True)

    @client.event
    async def on_raw_reaction_remove(event: discord.RawReactionActionEvent) -> None:
        await react(desk, client, event, on=False)

    try:
        async with client:
            await client.start(tokens["token"])
    except discord.LoginFailure:
        raise ClawbackError(f"Discord does not accept the token in {settings.token}.") from None
    except discord.PrivilegedIntentsRequired:
        raise ClawbackError("Discord refuses what the bot asks to read; see docs/channels.md.") from None
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        raise ClawbackError(f"Discord cannot be reached ({type(error).__name__}).") from None
    finally:
        await desk.close()


async def hear(desk: Desk, client: discord.Client, message: discord.Message) -> None:
    me = client.user
    if me is None or message.author.bot or message.webhook_id:
        return
    text, mentioned = message.content, me in message.mentions
    for form in (f"<@{me.id}>", f"<@!{me.id}>"):
        text = text.replace(form, "", 1)
    direct = message.guild is None
    replied = message.reference.message_id if message.reference else None

    async def send(piece: str) -> str:
        # No previews: to fetch one tells the address in it to whoever answers there.
        how: dict[str, Any] = {"suppress_embeds": True}
        if not direct:
            how |= {"reference": message.to_reference(fail_if_not_exists=False), "mention_author": False}
        sent = await message.channel.send(piece, **how)
        return f"{sent.channel.id}:{sent.id}"

    await desk.hear(
        Heard(
            session=f"discord:{message.channel.id}",
            id=f"{message.channel.id}:{message.id}",
            by=str(message.author.id),
            text=text.strip(),
            direct=direct,
            mentioned=mentioned,
            about=f"{message.channel.id}:{replied}" if replied else "",
        ),
        send,
    )


async def react(
    desk: Desk, client: discord.Client, event: discord.RawReactionActionEvent, *, on: bool
) -> None:
    me = client.user
    if me is None or event.user_id == me.id:
        return
    if event.message_author_id not in (None, me.id):  # where it is known
        return
    await desk.react(
        f"{event.channel_id}:{event.message_id}",
        str(event.user_id),
        sign_of(event.emoji.name or ""),
        on,
        direct=event.guild_id is None,
        # Discord says no time; it tells of everything once, and in order.
        at=time.time(),
    )
