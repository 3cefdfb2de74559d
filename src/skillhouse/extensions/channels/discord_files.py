"""Files in Discord: the attachments of a message, and a file of the bot.

The address of an attachment is signed and ends after about a day. What is stored of one is its
message, which is asked for again when the file is fetched.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import aiohttp
import discord
from yarl import URL

from skillhouse.extensions.channels.chat_channel import (
    BusyChannelError,
    ChannelError,
    ChatFile,
    OutgoingFile,
)
from skillhouse.extensions.channels.discord_connection import FILE_HOSTS, RETRY_SECONDS
from skillhouse.floor.regex import regex
from skillhouse.floor.threads import in_thread

RECEIVED_MAX = 25_000_000
SENT_MAX = 10_000_000
"""Below the 10 MiB that every chat takes (API reference, "Uploading Files")."""
FILE_SECONDS = 100.0
"""How long sending a file may take, so that its nonce is still known at the next try."""
_FETCH = aiohttp.ClientTimeout(total=300, sock_connect=15, sock_read=30)
_PART_BYTES = 65_536
_PLAIN = str.maketrans({'"': "_", "\\": "_"})
_ID = regex(r"([0-9]{1,20})/([0-9]{1,20})/([0-9]{1,20})")


def files_of(message: discord.Message) -> tuple[ChatFile, ...]:
    """Return the attachments of a message, each by the ids of its chat, its message and its own."""
    return tuple(
        ChatFile(
            id=f"{message.channel.id}/{message.id}/{one.id}", name=_name(one), size=max(0, one.size)
        )
        for one in message.attachments
    )


def _name(attachment: discord.Attachment) -> str:
    """Return a file's name; its title has the letters that Discord takes out of the name."""
    end = os.path.splitext(attachment.filename)[1]
    title = attachment.title
    return f"{title.removesuffix(end)}{end}" if title else attachment.filename


def place_of(file: ChatFile) -> tuple[str, int, int]:
    """Return the chat, the message and the attachment of a file."""
    found = _ID.fullmatch(file.id)
    if found is None:
        raise ChannelError("this is no file of Discord")
    return found[1], int(found[2]), int(found[3])


async def fetch_attachment(
    message: discord.Message,
    attachment: int,
    write: Callable[[bytes], None],
    connector: aiohttp.BaseConnector,
) -> None:
    """Pass the bytes of an attachment on; the request has no token."""
    address = next((one.url for one in message.attachments if one.id == attachment), None)
    if address is None:
        raise ChannelError("this file is not in its message any more")
    url = _own_address(address)
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                connector_owner=False,
                timeout=_FETCH,
                headers={"Accept-Encoding": "identity"},
            ) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise _refusal(answer.status)
            async for part in answer.content.iter_chunked(_PART_BYTES):
                write(part)
    # Any other OSError is one of `write`.
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        # Its text may have the address, by which anyone gets the file.
        text = f"a file could not be fetched ({type(error).__name__})"
        raise BusyChannelError(text, seconds=RETRY_SECONDS) from None


def _own_address(address: str) -> URL:
    """Return an address that is one of Discord's own files; else raise ChannelError."""
    try:
        url = URL(address)
        is_own = (url.scheme, url.host in FILE_HOSTS, url.port) == ("https", True, 443)
    except ValueError:
        is_own = False
    if not is_own or url.user is not None or url.password is not None:
        raise ChannelError("the service gives this file by no address of its own")
    return url


def _refusal(status: int) -> ChannelError:
    text = f"a file was answered with status {status}"
    if status in (408, 429) or status >= 500:
        return BusyChannelError(text, seconds=RETRY_SECONDS)
    return ChannelError(text)


async def file_to_send(file: OutgoingFile) -> discord.File:
    try:
        data = await in_thread(Path(file.path).read_bytes)
    except OSError as error:
        raise ChannelError(f"the file to send is gone: {error.strerror}") from error
    # In the head of its part these are written with a backslash, which not every server reads.
    name = file.name.translate(_PLAIN)
    return discord.File(io.BytesIO(data), filename=name)
