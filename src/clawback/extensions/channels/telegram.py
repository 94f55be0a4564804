"""The Telegram bot, by python-telegram-bot: messages and reactions are fetched (long polling), so no port is opened.

Reactions in a group reach only a bot that is an administrator of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from clawback import config
from clawback.errors import ClawbackError
from clawback.extensions.channels.channel import Desk, Heard, sign_of

if TYPE_CHECKING:
    from telegram import Message, MessageReactionUpdated, Update

log = logging.getLogger("clawback.channels")

LIBRARY = "telegram"
TOKENS = {"token": ""}
LIMIT = 4096


async def run(desk: Desk, settings: config.TelegramSection, tokens: Mapping[str, str]) -> None:
    from telegram.error import InvalidToken, TelegramError
    from telegram.ext import Application, MessageHandler, MessageReactionHandler, filters

    async def on_message(update: Update, _: object) -> None:
        if update.message:
            await hear(desk, update.message)

    async def on_reaction(update: Update, _: object) -> None:
        if update.message_reaction:
            await react(desk, update.update_id, update.message_reaction)

    async def on_error(_: object, context: Any) -> None:
        log.error("telegram: %s", type(context.error).__name__)

    base = f"{settings.api.rstrip('/')}/bot"
    app = Application.builder().token(tokens["token"]).base_url(base).concurrent_updates(True).build()
    app.add_handler(MessageHandler(filters.UpdateType.MESSAGE & filters.TEXT, on_message))
    app.add_handler(MessageReactionHandler(on_reaction))
    app.add_error_handler(on_error)
    assert app.updater
    try:
        # Their messages hold the token, so they are not passed on.
        await app.initialize()
    except InvalidToken:
        raise ClawbackError(f"Telegram does not accept the token in {settings.token}.") from None
    except TelegramError as error:
        raise ClawbackError(f"Telegram cannot be reached ({type(error).__name__}).") from None
    try:
        await app.start()
        # What was said while the bot was away is still heard.
        await app.updater.start_polling(
            allowed_updates=["message", "message_reaction"],
            error_callback=lambda error: log.warning("telegram: %s", type(error).__name__),
        )
        log.info("telegram: listening as @%s", app.bot.username)
        await asyncio.Event().wait()
    finally:
        if app.updater.running:
            await app.updater.stop()
        await desk.close()
        if app.running:
            await app.stop()
        await app.shutdown()


async def hear(desk: Desk, message: Message) -> None:
    who, chat = message.from_user, message.chat
    if who is None or who.is_bot or not message.text:
        return
    bot = message.get_bot()
    text, mentioned = without_mention(message, bot.username, bot.id)
    thread = f":{message.message_thread_id}" if message.is_topic_message else ""
    replied = message.reply_to_message
    # In a forum every message "replies" to the one that opened its topic.
    if replied and message.is_topic_message and replied.message_id == message.message_thread_id:
        replied = None
    direct = chat.type == "private"

    async def send(piece: str) -> str:
        from telegram import LinkPreviewOptions

        # No previews: to fetch one tells the address in it to whoever answers there.
        sent = await message.reply_text(
            piece, do_quote=not direct, link_preview_options=LinkPreviewOptions(is_disabled=True)
        )
        return f"{chat.id}:{sent.message_id}"

    await desk.hear(
        Heard(
            session=f"telegram:{chat.id}{thread}",
            id=f"{chat.id}:{message.message_id}",
            by=str(who.id),
            text=text,
            direct=direct,
            mentioned=mentioned,
            about=f"{chat.id}:{replied.message_id}" if replied else "",
        ),
        send,
    )


def without_mention(message: Message, name: str, number: int) -> tuple[str, bool]:
    """The text without ``@bot``, and whether it was there; ``/rl@bot good`` is ``/rl good``, ``/rl@other`` is nobody's."""
    text, mentioned = message.text or "", False
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    if first.startswith("/") and "@" in first:
        word, _, whom = first.partition("@")
        if whom.lower() != name.lower():
            return "", False
        return text.replace(first, word, 1), True
    for entity, said in message.parse_entities(["mention", "text_mention"]).items():
        if said.lower() == f"@{name.lower()}" or (entity.user is not None and entity.user.id == number):
            text, mentioned = text.replace(said, "", 1), True
    return text.strip(), mentioned


async def react(desk: Desk, number: int, event: MessageReactionUpdated) -> None:
    """All of a person's reactions to a message, as they were and as they are."""
    if event.user is None or event.user.is_bot:
        return
    message = f"{event.chat.id}:{event.message_id}"
    # Whole seconds; within one the number of the update says what came first.
    at = event.date.timestamp() + number % 1_000_000 / 1_000_000
    before, now = signs(event.old_reaction), signs(event.new_reaction)
    # What went first: of two ratings the newer counts.
    for sign in sorted(before | now, key=lambda one: one in now):
        await desk.react(
            message,
            str(event.user.id),
            sign,
            sign in now,
            direct=event.chat.type == "private",
            at=at,
        )


def signs(reactions: Iterable[object]) -> set[int]:
    return {sign for one in reactions if (sign := sign_of(getattr(one, "emoji", "")))}
