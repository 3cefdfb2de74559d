"""A loopback Discord, written after the public documentation (docs.discord.com/developers).

REST, gateway and CDN are behind one port with TLS, for all names of the service. It keeps the
messages of every chat, a session's events until it is resumed, and refuses what the service
refuses; it can have faults: a status, a long limit, a connection that is closed before or after the
work, a gateway that closes, sessions that are forgotten, addresses of files that end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web
from tests.extensions.channels.fake_service import FakeService, Json
from tests.net.certificates import contexts

from skillhouse.extensions.channels.chat_channel import ChatChannel
from skillhouse.extensions.channels.discord import DiscordChannel
from skillhouse.extensions.channels.mailbox import Mailbox
from skillhouse.house import Skillhouse

TOKEN = "MTIzNDU.GfakeX.token-of-the-fake-discord-bot"
BOT_ID = 100_000_000_000_012_345
BOT = {"id": str(BOT_ID), "username": "house", "discriminator": "0", "avatar": None, "bot": True}
GUILD = 500
ROLE = 600
"""The role that the server gave to the bot."""
CHANNEL = 900
THREAD = 901
CDN = "cdn.discordapp.com"
NAMES = ("discord.com", "gateway.discord.gg", "gateway-us.discord.gg", CDN)
EPOCH_MS = 1_420_070_400_000
MESSAGE_CONTENT = 1 << 15
INTERACTION_SECONDS = 3.0
NONCE_SECONDS = 180.0
"""How long a nonce is known here; the documentation says "a few minutes"."""


def contents(text: str) -> str:
    """Return a text of the bot as Discord shows it, as far as escapes go."""
    shown = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text) and not text[at + 1].isalnum():
            at += 1
        shown.append(text[at])
        at += 1
    return "".join(shown)


@dataclass
class Session:
    """What one IDENTIFY began; its events are kept so that it can be resumed."""

    id: str
    intents: int
    events: list[Json] = field(default_factory=list)
    socket: web.WebSocketResponse | None = None
    transport: asyncio.Transport | None = None


class RefusedError(Exception):
    """A status, and what the body says."""

    def __init__(self, status: int, code: int = 0, message: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class FakeDiscord(FakeService):
    """The service: what people write to it, and what the bot did."""

    port: int = 0
    certificate: str = ""
    history: dict[int, list[Json]] = field(default_factory=dict)
    """The messages of each chat, everyone's, oldest first."""
    direct: dict[int, int] = field(default_factory=dict)
    """The person of each direct chat."""
    sessions: dict[str, Session] = field(default_factory=dict)
    interactions: dict[str, Json] = field(default_factory=dict)
    nonces: dict[str, tuple[float, Json]] = field(default_factory=dict)
    nonce_seconds: float = NONCE_SECONDS
    allows_content: bool = True
    """Whether the message content intent is switched on in the developer portal."""
    is_gateway_open: bool = True
    closed: int = 0
    """How often the gateway refused an IDENTIFY."""
    identified: int = 0
    resumed: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    """The bytes of each attachment."""
    signatures: dict[str, str] = field(default_factory=dict)
    """Which attachment an address gives, as long as it does."""
    address: str = ""
    """What all addresses of attachments are in place of those of the CDN."""
    attachment_max: int = 10_485_760
    token: str = TOKEN
    loop: asyncio.AbstractEventLoop | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def channel(self, house: Skillhouse, webhook: str = "") -> ChatChannel:
        """Return what the bot talks with."""
        mailbox = Mailbox(house.config.state_directory)
        allow = frozenset(house.config.bot.allow)
        return DiscordChannel(TOKEN, server=self.url, chats=mailbox, allow=allow)

    def snowflake(self) -> int:
        with self.lock:
            return (int(time.time() * 1000) - EPOCH_MS << 22) | (next(self.numbers) & 0xFFF)

    def direct_chat(self, user: int) -> int:
        return 7_000_000 + user

    def write(
        self,
        text: str,
        *,
        user: int = 42,
        chat: int | None = None,
        name: str = "Ada",
        author: Json | None = None,
        **more: Any,
    ) -> Json:
        """Have a person write, in the direct chat or in a chat of the server; return it."""
        place = chat or self.direct_chat(user)
        if chat is None:
            self.direct[place] = user
        sender = {"id": str(user), "username": "ada", "discriminator": "0", "avatar": None}
        sender["global_name"] = name
        made = self._message(place, author or sender, text, **more)
        with self.lock:
            self.history.setdefault(place, []).append(made)
            self._dispatch("MESSAGE_CREATE", self._in_guild(made) if chat else made)
        return made

    def send(self, *files: tuple[str, bytes], text: str = "", **more: Any) -> Json:
        """Have a person send files; `size` is what the service says of each."""
        size = more.pop("size", None)
        made = [self.attachment(name, data, size) for name, data in files]
        return self.write(text, attachments=made, **more)

    def end_addresses(self) -> None:
        """Have every address end that was given so far, as after a day."""
        with self.lock:
            self.signatures.clear()

    def attachment(self, name: str, data: bytes, size: int | None = None) -> Json:
        number = str(self.snowflake())
        self.files[number] = data
        return {"id": number, "filename": name, "size": len(data) if size is None else size}

    def _shown(self, message: Json) -> Json:
        """Return a message with addresses of its files that are new, as the service has them."""
        found = []
        for one in message["attachments"]:
            signature = secrets.token_hex(16)
            self.signatures[signature] = one["id"]
            place = f"attachments/{message['channel_id']}/{one['id']}/file?ex=1&is=1&hm={signature}"
            address = self.address or f"https://{CDN}/{place}"
            found.append({**one, "url": address, "proxy_url": address})
        return {**message, "attachments": found}

    def press(self, message: Json, label: str, *, user: int = 42, data: str | None = None) -> str:
        """Have a person press the button with this label, or with data of their own."""
        buttons = [one for row in message["buttons"] for one in row["components"]]
        found = data or next(one["custom_id"] for one in buttons if one["label"] == label)
        chat = message["chat"]["id"]
        person = {"id": str(user), "username": "ada", "discriminator": "0", "avatar": None}
        person["global_name"] = "Ada"
        number = str(self.snowflake())
        is_direct = chat in self.direct
        made: Json = {
            "id": number,
            "application_id": str(BOT_ID),
            "type": 3,
            "token": f"interaction-token-{number}",
            "version": 1,
            "channel": {"id": str(chat), "type": 1 if is_direct else 0, **_PLACE},
            "channel_id": str(chat),
            "message": self._message(chat, BOT, message["source"], id=str(message["message_id"])),
            "data": {"component_type": 2, "custom_id": found, "id": 2},
            "attachment_size_limit": 10_485_760,
            "locale": "en-US",
            "entitlements": [],
            "app_permissions": "0",
        }
        if is_direct:
            made["user"] = person
        else:
            made |= {"guild_id": str(GUILD), "member": {**_MEMBER, "user": person}}
            made["channel"]["type"] = 11 if chat == THREAD else 0
        with self.lock:
            self.interactions[number] = {"at": time.monotonic(), "state": "new", "chat": chat}
            self._dispatch("INTERACTION_CREATE", made)
        return number

    def send_again(self, event: str, part: str = "") -> None:
        """Dispatch the first event of a kind once more, as it was."""
        with self.lock:
            found = next(
                one["d"]
                for session in self.sessions.values()
                for one in session.events
                if one["t"] == event and part in json.dumps(one["d"])
            )
            self._dispatch(event, found)

    def disconnect(self, code: int | None = None, *, forget: bool = False) -> None:
        """Close the gateway: with a code, or without a word; `forget` makes a resume impossible."""
        with self.lock:
            found = [one for one in self.sessions.values() if one.socket is not None]
            if forget:
                self.sessions.clear()
        for session in found:
            self._run(_close(session, code))

    def notes(self) -> list[str]:
        """Return what was said to those who pressed a button."""
        return [contents(one["content"]) for one in self.of("followup")]

    def _run(self, work: Any) -> None:
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def _dispatch(self, event: str, data: Json) -> None:
        """Give an event to every session; those that are not connected get it when resumed."""
        for session in self.sessions.values():
            made = self._event(session, event, data)
            if session.socket is not None:
                self._run(_send(session.socket, made))

    def _event(self, session: Session, event: str, data: Json) -> Json:
        shown = data
        if event == "MESSAGE_CREATE" and not self._may_read(session.intents, data):
            shown = {**data, "content": "", "attachments": []}
        if event == "MESSAGE_CREATE":
            shown = self._shown(shown)
        made = {"op": 0, "t": event, "s": len(session.events) + 1, "d": shown}
        session.events.append(made)
        return made

    def _may_read(self, intents: int, message: Json) -> bool:
        return (
            bool(intents & MESSAGE_CONTENT)
            or "guild_id" not in message
            or any(one["id"] == str(BOT_ID) for one in message["mentions"])
        )

    def _message(self, chat: int, author: Json, text: str, **more: Any) -> Json:
        number = self.snowflake()
        mentioned = [BOT] if f"<@{BOT_ID}>" in text or f"<@!{BOT_ID}>" in text else []
        replied = more.pop("reply_to", None)
        made = {
            "id": str(number),
            "channel_id": str(chat),
            "author": author,
            "content": text,
            "timestamp": datetime.now(UTC).isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": mentioned,
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "type": 0,
            "flags": 0,
            **more,
        }
        if replied:
            found = next(one for one in self.history[chat] if one["id"] == str(replied))
            made |= {"type": 19, "referenced_message": found}
            made["message_reference"] = {"message_id": str(replied), "channel_id": str(chat)}
        return made

    def _in_guild(self, message: Json) -> Json:
        return {**message, "guild_id": str(GUILD), "member": dict(_MEMBER)}

    # REST

    def do(self, method: str, path: str, query: Any, payload: Json) -> tuple[str, Any]:
        """Do a request; return its name, and the answer. Raises RefusedError."""
        parts = path.strip("/").split("/")[2:]
        match method, parts:
            case "GET", ["users", "@me"]:
                return "me", BOT
            case "GET", ["oauth2", "applications", "@me"]:
                return "application", _APPLICATION
            case "POST", ["users", "@me", "channels"]:
                chat = self.direct_chat(int(payload["recipient_id"]))
                self.direct[chat] = int(payload["recipient_id"])
                return "direct", self._place(chat)
            case "GET", ["channels", chat]:
                return "channel", self._place(int(chat))
            case "GET", ["channels", chat, "messages"]:
                return "history", self._page(int(chat), query)
            case "GET", ["channels", chat, "messages", message]:
                return "message", self._one(int(chat), message)
            case "POST", ["channels", chat, "messages"]:
                return "send", self._shown(self._send(int(chat), payload))
            case "PATCH", ["channels", chat, "messages", message]:
                return "edit", self._edit(int(message), payload)
            case "POST", ["channels", _, "typing"]:
                return "typing", None
            case "POST", ["interactions", number, _, "callback"]:
                return "callback", self._respond(number, payload)
            case "POST", ["webhooks", application, token]:
                return "followup", self._follow_up(application, token, payload)
        raise RefusedError(404, 0, "404: Not Found")

    def _place(self, chat: int) -> Json:
        last = (self.history.get(chat) or [{"id": None}])[-1]["id"]
        if chat in self.direct:
            person = {"id": str(self.direct[chat]), "username": "ada", "discriminator": "0"}
            recipients = [{**person, "avatar": None}]
            return {"id": str(chat), "type": 1, "last_message_id": last, "recipients": recipients}
        if chat not in (CHANNEL, THREAD):
            raise RefusedError(404, 10003, "Unknown Channel")
        return {**_place_in_guild(chat), "guild_id": str(GUILD), "last_message_id": last}

    def _page(self, chat: int, query: Any) -> list[Json]:
        self._place(chat)
        after, limit = int(query.get("after") or 0), int(query.get("limit") or 50)
        assert 1 <= limit <= 100
        found = [one for one in self.history.get(chat, []) if int(one["id"]) > after]
        # The oldest of those after it, newest first.
        return [self._shown(one) for one in found[:limit][::-1]]

    def _one(self, chat: int, number: str) -> Json:
        self._place(chat)
        found = next((one for one in self.history.get(chat, []) if one["id"] == number), None)
        if found is None:
            raise RefusedError(404, 10008, "Unknown Message")
        return self._shown(found)

    def _send(self, chat: int, payload: Json) -> Json:
        self._place(chat)
        text = str(payload.get("content") or "")
        files = payload.pop("files", {})
        if not text.strip() and not files:
            raise RefusedError(400, 50006, "Cannot send an empty message")
        if any(len(data) > self.attachment_max for _, data in files.values()):
            raise RefusedError(413, 40005, "Request entity too large")
        if len(text) > 2_000:
            raise RefusedError(400, 50035, "Invalid Form Body: Must be 2000 or fewer in length.")
        for row in payload.get("components") or ():
            for button in row["components"]:
                if not 1 <= len(button["custom_id"]) <= 100 or len(button["label"]) > 80:
                    raise RefusedError(400, 50035, "Invalid Form Body")
        nonce = str(payload.get("nonce") or "")
        if len(nonce) > 25:
            raise RefusedError(400, 50035, "Invalid Form Body: nonce")
        if nonce and payload.get("enforce_nonce"):
            at, known = self.nonces.get(nonce, (0.0, {}))
            if known and time.monotonic() - at < self.nonce_seconds:
                return known
        made = self._message(chat, BOT, text, nonce=nonce, flags=payload.get("flags", 0))
        made["components"] = payload.get("components") or []
        for one in payload.get("attachments") or []:
            name, data = files[f"files[{one['id']}]"]
            assert name == one["filename"]
            made["attachments"].append(self.attachment(name, data))
        self.nonces[nonce] = (time.monotonic(), made)
        self.history.setdefault(chat, []).append(made)
        self.messages.append(
            {
                "message_id": int(made["id"]),
                "chat": {"id": chat},
                "text": contents(text),
                "source": text,
                "buttons": payload.get("components") or [],
                "reply_to": str((payload.get("message_reference") or {}).get("message_id")),
                "payload": payload,
                "files": list(files.values()),
            }
        )
        event = made if chat in self.direct else self._in_guild(made)
        self._dispatch("MESSAGE_CREATE", event)
        return made

    def _edit(self, number: int, payload: Json) -> Json:
        found = next((one for one in self.messages if one["message_id"] == number), None)
        if found is None:
            raise RefusedError(404, 10008, "Unknown Message")
        text = str(payload.get("content") or "")
        if not 1 <= len(text) <= 2_000:
            raise RefusedError(400, 50035, "Invalid Form Body")
        found |= {"text": contents(text), "source": text, "buttons": payload.get("components")}
        return self._message(found["chat"]["id"], BOT, text, id=str(number))

    def _respond(self, number: str, payload: Json) -> Json:
        known = self.interactions.get(number)
        if known is None or time.monotonic() - known["at"] > INTERACTION_SECONDS:
            raise RefusedError(404, 10062, "Unknown interaction")
        if known["state"] != "new":
            raise RefusedError(400, 40060, "Interaction has already been acknowledged.")
        known |= {"state": "responded", "response": payload}
        about = {"id": number, "type": 3, "response_message_loading": False}
        return {"interaction": {**about, "response_message_ephemeral": False}}

    def _follow_up(self, application: str, token: str, payload: Json) -> Json:
        number = token.removeprefix("interaction-token-")
        known = self.interactions.get(number)
        if application != str(BOT_ID) or known is None or known["state"] != "responded":
            raise RefusedError(404, 10015, "Unknown Webhook")
        known["is_ephemeral"] = bool(payload.get("flags", 0) & 64)
        made = self._message(known["chat"], BOT, payload["content"])
        return {**made, "webhook_id": str(BOT_ID), "application_id": str(BOT_ID)}

    async def rest(self, request: web.Request) -> web.StreamResponse:
        payload = await _payload(request)
        is_open = "/interactions/" in request.path or "/webhooks/" in request.path
        if not is_open and request.headers.get("Authorization") != f"Bot {self.token}":
            return _json(401, {"message": "401: Unauthorized", "code": 0})
        name = _name_of(request)
        with self.lock:
            # Of this chat alone, or of all.
            chat = request.path.strip("/").split("/")[3:4]
            faults = self.faults.get(f"{name} {''.join(chat)}") or self.faults.get(name)
            fault = faults.popleft() if faults else 0
            if fault == "limit" or (isinstance(fault, int) and fault):
                self.lock.notify_all()
                return _fault(fault)
            if fault != "before":
                try:
                    _, answer = self.do(request.method, request.path, request.query, payload)
                    status = 204 if answer is None else 200
                except RefusedError as error:
                    status, answer = (
                        error.status,
                        {"message": error.message, "code": error.code},
                    )
                self.calls.append((name, payload))
                self.lock.notify_all()
        if fault in ("before", "after"):
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        return web.Response(status=204) if status == 204 else _json(status, answer)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Answer as the CDN, which knows an address by its signature alone."""
        with self.lock:
            waiting = self.faults.get("file")
            fault = waiting.popleft() if waiting else 0
            number = self.signatures.get(request.query.get("hm", ""))
            about = {"host": request.host, "authorization": request.headers.get("Authorization")}
            self.calls.append(("file", about))
            self.lock.notify_all()
        assert request.transport is not None
        if fault == "before":
            request.transport.abort()
        if fault == 302:
            return web.Response(status=302, headers={"Location": f"{self.url}/elsewhere"})
        if isinstance(fault, int) and fault:
            return web.Response(status=fault)
        if number is None or request.host != CDN:
            return web.Response(status=404, text="This content is no longer available.")
        data = self.files[number]
        if fault == "after":
            answer = web.StreamResponse(headers={"Content-Length": str(len(data))})
            await answer.prepare(request)
            await answer.write(data[: len(data) // 2])
            request.transport.abort()
            return answer
        return web.Response(body=data, content_type="application/octet-stream")

    # Gateway

    async def gateway(self, request: web.Request) -> web.StreamResponse:
        if not self.is_gateway_open:
            return _json(503, {"message": "503", "code": 0})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await _send(socket, {"op": 10, "d": {"heartbeat_interval": 41_250}})
        session: Session | None = None
        try:
            async for raw in socket:
                if raw.type is not WSMsgType.TEXT:
                    continue
                message = json.loads(raw.data)
                if message["op"] == 1:
                    await _send(socket, {"op": 11})
                elif message["op"] == 2:
                    session = await self._identify(socket, message["d"])
                elif message["op"] == 6:
                    session = await self._resume(socket, message["d"])
                if session is not None:
                    session.transport = request.transport
        finally:
            with self.lock:
                if session is not None and session.socket is socket:
                    session.socket = None
                self.lock.notify_all()
        return socket

    async def _identify(self, socket: web.WebSocketResponse, data: Json) -> Session | None:
        if data["token"] != self.token:
            await self._refuse(socket, 4004)
            return None
        if data["intents"] & MESSAGE_CONTENT and not self.allows_content:
            await self._refuse(socket, 4014)
            return None
        with self.lock:
            session = Session(id=f"s{next(self.numbers)}", intents=data["intents"])
            ready = {
                "v": 10,
                "user": BOT,
                "guilds": [{"id": str(GUILD), "unavailable": True}],
                "session_id": session.id,
                "resume_gateway_url": "wss://gateway-us.discord.gg",
                "application": {"id": str(BOT_ID), "flags": 0},
            }
            made = [
                self._event(session, "READY", ready),
                self._event(session, "GUILD_CREATE", self._guild()),
            ]
            for one in made:
                self._run(_send(socket, one))
            # What is written from here on follows them.
            session.socket = socket
            self.sessions[session.id] = session
            self.identified += 1
            self.lock.notify_all()
        return session

    async def _refuse(self, socket: web.WebSocketResponse, code: int) -> None:
        await socket.close(code=code)
        with self.lock:
            self.closed += 1
            self.lock.notify_all()

    async def _resume(self, socket: web.WebSocketResponse, data: Json) -> Session | None:
        with self.lock:
            session = self.sessions.get(data["session_id"])
            if session is None or data["token"] != self.token:
                self._run(_send(socket, {"op": 9, "d": False}))
                return None
            for one in session.events[data["seq"] :]:
                self._run(_send(socket, one))
            self._run(_send(socket, self._event(session, "RESUMED", {})))
            session.socket = socket
            self.resumed += 1
            self.lock.notify_all()
        return session

    def _guild(self) -> Json:
        places = {chat: self._place(chat) for chat in (CHANNEL, THREAD)}
        return {
            "id": str(GUILD),
            "name": "Team",
            "owner_id": "42",
            "member_count": 3,
            "channels": [places[CHANNEL]],
            "threads": [places[THREAD]],
            "members": [{**_MEMBER, "user": BOT}],
            "roles": [_ROLE],
        }


_ROLE: Json = {
    "id": str(ROLE),
    "name": "house",
    "permissions": "0",
    "position": 1,
    "color": 0,
    "colors": {"primary_color": 0},
    "hoist": False,
    "managed": True,
    "mentionable": False,
    "tags": {"bot_id": str(BOT_ID)},
    "flags": 0,
}
_MEMBER: Json = {
    "roles": [],
    "joined_at": "2026-01-01T00:00:00+00:00",
    "deaf": False,
    "mute": False,
    "flags": 0,
}
_PLACE: Json = {"name": "team", "position": 0, "permission_overwrites": []}
_APPLICATION: Json = {
    "id": str(BOT_ID),
    "name": "House",
    "icon": None,
    "description": "",
    "bot_public": False,
    "bot_require_code_grant": False,
    "owner": {"id": "42", "username": "ada", "discriminator": "0", "avatar": None},
    "verify_key": "00",
    "flags": 0,
}


def _place_in_guild(chat: int) -> Json:
    if chat == CHANNEL:
        return {"id": str(chat), "type": 0, **_PLACE}
    about: Json = {"archived": False, "auto_archive_duration": 1440, "locked": False}
    about["archive_timestamp"] = "2026-01-01T00:00:00+00:00"
    counts = {"message_count": 1, "member_count": 1, "owner_id": "42"}
    return {
        "id": str(chat),
        "type": 11,
        "name": "side",
        "parent_id": str(CHANNEL),
        "thread_metadata": about,
        **counts,
    }


def _name_of(request: web.Request) -> str:
    """Return by which name a request has faults, before it is done."""
    parts = request.path.strip("/").split("/")[2:]
    last = parts[-1] if parts else ""
    if last == "messages":
        return "send" if request.method == "POST" else "history"
    if "messages" in parts:
        return "edit" if request.method == "PATCH" else "message"
    named = {"users/@me": "me", "users/@me/channels": "direct"}
    first = {"webhooks": "followup", "oauth2": "application"}
    found = named.get("/".join(parts)) or first.get(parts[0] if parts else "")
    return found or (last if last in ("typing", "callback") else "channel")


async def _payload(request: web.Request) -> Json:
    if request.content_type != "multipart/form-data":
        body = await request.read()
        return json.loads(body) if body else {}
    form = await request.post()
    made: Json = json.loads(str(form["payload_json"]))
    made["files"] = {
        name: (one.filename, one.file.read())
        for name, one in form.items()
        if isinstance(one, web.FileField)
    }
    return made


def _fault(status: int | str) -> web.Response:
    if status in (429, "limit"):
        seconds = 45.0 if status == "limit" else 0.3
        body = {"message": "You are being rate limited.", "retry_after": seconds, "global": False}
        headers = {"Via": "1.1 google", "Retry-After": "1", "X-RateLimit-Scope": "user"}
        return _json(429, body, headers)
    assert isinstance(status, int)
    return _json(status, {"message": f"{status}: fault", "code": 0})


def _json(status: int, answer: Any, headers: dict[str, str] | None = None) -> web.Response:
    body = json.dumps(answer).encode()
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


async def _send(socket: web.WebSocketResponse, message: Json) -> None:
    if not socket.closed:
        await socket.send_str(json.dumps(message))


async def _close(session: Session, code: int | None) -> None:
    socket, session.socket = session.socket, None
    if socket is None:
        return
    if code is None:
        # As a network that is gone: nothing is said.
        assert session.transport is not None
        session.transport.abort()
    else:
        await socket.close(code=code)


@contextmanager
def fake_discord(directory: Path) -> Iterator[FakeDiscord]:
    """Serve while the block runs; this process trusts its certificate meanwhile."""
    server, _ = contexts(directory, *NAMES)
    made = FakeDiscord(certificate=str(directory / "server.pem"))
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = made.certificate
    started, ended = threading.Event(), asyncio.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve(made, server, started, ended)), daemon=True
    )
    thread.start()
    assert started.wait(30)
    try:
        yield made
    finally:
        assert made.loop is not None
        made.loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


async def _serve(
    made: FakeDiscord, context: ssl.SSLContext, started: threading.Event, ended: asyncio.Event
) -> None:
    made.loop = asyncio.get_running_loop()
    app = web.Application(client_max_size=60_000_000)
    app.router.add_get("/", made.gateway)
    app.router.add_route("*", "/api/v10/{rest:.*}", made.rest)
    app.router.add_get("/{rest:.*}", made.file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    made.port = runner.addresses[0][1]
    started.set()
    await ended.wait()
    for session in list(made.sessions.values()):
        await _close(session, 1001)
    await runner.cleanup()


def faults(*ones: int | str) -> deque[int | str]:
    return deque(ones)
