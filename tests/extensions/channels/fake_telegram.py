"""A loopback Bot API server, written after the public documentation (core.telegram.org/bots/api).

It keeps updates until a later `offset` confirms them, as the service does, refuses what the service
refuses, and can have faults: a status, or a connection that is closed before or after the work.
"""

from __future__ import annotations

import html.parser
import http.client
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.extensions.channels.fake_service import FakeService, Json
from tests.loopback_http import QuietHandler, serving_http

from skillhouse.extensions.channels.channel_session import MENU
from skillhouse.extensions.channels.chat_channel import ChatChannel
from skillhouse.extensions.channels.telegram import TelegramChannel
from skillhouse.house import Skillhouse

TOKEN = "12345:AAtoken-of-the-fake"
BOT = {"id": 12345, "is_bot": True, "first_name": "House", "username": "house_bot"}
TEXT_MAX = 4096
DOWNLOAD_MAX = 20_000_000
TAGS = {"b", "i", "u", "s", "code", "pre", "a", "blockquote", "tg-spoiler"}
WAIT_SECONDS = 0.5
"""How long `getUpdates` waits here at most; a real one waits as long as it is asked to."""

SLOW_SECONDS = 1.5
"""How long the answer to a request takes that is `slow`, when it is done already."""


@dataclass
class FakeTelegram(FakeService):
    """The service: what people write to it, and what the bot did."""

    port: int = 0
    updates: list[Json] = field(default_factory=list)
    delivered: list[Json] = field(default_factory=list)
    """What was confirmed, and so is delivered no more."""
    again: list[Json] = field(default_factory=list)
    """What is delivered once more to the next request, confirmed or not."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What `getFile` knows, by id; its path there is the id too."""
    webhook: Json = field(default_factory=dict)
    """What the bot set, where it has one."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def channel(self, house: Skillhouse, webhook: str = "") -> ChatChannel:
        """Return what the bot talks with."""
        address = urlsplit(webhook)
        listen = (address.hostname or "127.0.0.1", address.port or 0)
        return TelegramChannel(
            TOKEN, base_url=self.url, commands=MENU, webhook=webhook, listen=listen
        )

    def write(
        self,
        text: str,
        *,
        user: int = 42,
        chat: int | None = None,
        name: str = "Ada",
        update: int | None = None,
        **more: Any,
    ) -> int:
        """Have a person write; return the number of the update."""
        sender = {"id": user, "is_bot": False, "first_name": name}
        place: Json = {"id": chat or user, "type": "supergroup" if chat else "private"}
        if chat:
            place["title"] = "Team"
        message = {"message_id": next(self.numbers), "date": int(time.time()), "chat": place}
        message |= {"from": sender, "text": text, "entities": _entities(text), **more}
        return self._add({"message": message}, update)

    def send(
        self, data: bytes, name: str | None = "a.bin", *, size: int | None = None, **more: Any
    ) -> int:
        """Have a person send a document; `size` is what the service says of it."""
        file = f"file{next(self.numbers)}"
        with self.lock:
            self.files[file] = data
        document: Json = {"file_id": file, "file_unique_id": file}
        document["file_size"] = len(data) if size is None else size
        if name is not None:
            document["file_name"] = name
        return self.write(more.pop("text", ""), document=document, **more)

    def press(self, message: Json, label: str, *, user: int = 42, data: str | None = None) -> int:
        """Have a person press the button with this label, or with data of their own."""
        buttons = [one for row in message["buttons"] for one in row]
        found = data or next(one["callback_data"] for one in buttons if one["text"] == label)
        sender = {"id": user, "is_bot": False, "first_name": "Ada"}
        shown = {"message_id": message["message_id"], "date": 1, "chat": message["chat"]}
        query = {"id": f"press{next(self.numbers)}", "from": sender, "chat_instance": "1"}
        return self._add({"callback_query": {**query, "message": shown, "data": found}}, None)

    def redeliver(self, update: Json) -> None:
        """Deliver an update once more, as after a request that was cut off."""
        with self.lock:
            self.again.append(update)
            self.lock.notify_all()

    def bring(self, *, body: bytes | None = None, **more: Any) -> int:
        """Bring the oldest update to the webhook, or this body; return the status of the answer.

        `more` are another secret, method or path. An update that was taken is delivered.
        """
        webhook = self.wait(lambda one: one.webhook)
        address = urlsplit(webhook["url"])
        headers = {"Content-Type": "application/json"}
        if secret := more.get("secret", webhook["secret_token"]):
            headers["X-Telegram-Bot-Api-Secret-Token"] = secret
        update = self.updates[0] if body is None else None
        connection = http.client.HTTPConnection(address.netloc, timeout=20)
        with closing(connection):
            given = body if update is None else json.dumps(update).encode()
            path = more.get("path", address.path)
            connection.request(more.get("method", "POST"), path, given, headers)
            status = connection.getresponse().status
        if status == 200 and update is not None:
            with self.lock:
                self.updates.remove(update)
                self.delivered.append(update)
                self.lock.notify_all()
        return status

    def _add(self, update: Json, number: int | None) -> int:
        with self.lock:
            number = number or next(self.numbers)
            self.updates.append({"update_id": number, **update})
            self.lock.notify_all()
        return number

    def do(self, method: str, payload: Json) -> tuple[int, Any]:
        """Do a method; return the status, and the result or the description of the error."""
        if method == "getUpdates" and self.webhook:
            return 409, "Conflict: can't use getUpdates method while webhook is active"
        if method == "getUpdates":
            return 200, self._get_updates(payload)
        if method == "getMe":
            return 200, BOT
        if method == "sendMessage":
            return self._send(payload)
        if method == "sendDocument":
            return self._send_document(payload)
        if method == "getFile":
            return self._get_file(payload["file_id"])
        if method == "editMessageText":
            return self._edit(payload)
        if method in ("sendMessageDraft", "sendChatAction"):
            return 200, True
        if method == "setWebhook":
            self.webhook = payload
            return 200, True
        if method == "deleteWebhook":
            self.webhook = {}
            return 200, True
        if method in ("setMyCommands", "answerCallbackQuery"):
            return 200, True
        return 404, "Not Found: method not found"

    def _get_updates(self, payload: Json) -> list[Json]:
        offset = int(payload.get("offset") or 0)
        self.delivered += [one for one in self.updates if one["update_id"] < offset]
        self.updates[:] = [one for one in self.updates if one["update_id"] >= offset]
        if not self.updates and not self.again:
            self.lock.wait(min(WAIT_SECONDS, float(payload.get("timeout") or 0)))
        given = [*self.again, *self.updates]
        self.again.clear()
        return sorted(given, key=lambda one: one["update_id"])[:100]

    def _send(self, payload: Json) -> tuple[int, Any]:
        text, why = _shown(payload)
        if why:
            return 400, f"Bad Request: {why}"
        markup = payload.get("reply_markup") or {}
        for row in markup.get("inline_keyboard", ()):
            for button in row:
                if not 1 <= len(button["callback_data"].encode()) <= 64:
                    return 400, "Bad Request: BUTTON_DATA_INVALID"
        chat = int(payload["chat_id"])
        made = {"message_id": next(self.numbers), "date": int(time.time()), "text": text}
        made |= {"chat": {"id": chat, "type": "private" if chat > 0 else "supergroup"}}
        made["from"] = BOT
        kept = {**made, "buttons": markup.get("inline_keyboard", []), "source": payload["text"]}
        kept["reply_to"] = (payload.get("reply_parameters") or {}).get("message_id")
        self.messages.append(kept)
        return 200, made

    def _get_file(self, file: str) -> tuple[int, Any]:
        if file not in self.files:
            return 400, "Bad Request: invalid file_id"
        if len(self.files[file]) > DOWNLOAD_MAX:
            return 400, "Bad Request: file is too big"
        return 200, {"file_id": file, "file_unique_id": file, "file_path": f"documents/{file}"}

    def _send_document(self, payload: Json) -> tuple[int, Any]:
        name, data = payload["document"]
        chat = int(payload["chat_id"])
        made: Json = {"message_id": next(self.numbers), "date": int(time.time())}
        made["chat"] = {"id": chat, "type": "private" if chat > 0 else "supergroup"}
        made |= {"from": BOT, "caption": payload.get("caption", "")}
        kept = {**made, "text": payload.get("caption", ""), "buttons": []}
        self.messages.append({**kept, "document": data, "file_name": name})
        return 200, made

    def _edit(self, payload: Json) -> tuple[int, Any]:
        number = int(payload["message_id"])
        found = next((one for one in self.messages if one["message_id"] == number), None)
        if found is None:
            return 400, "Bad Request: message to edit not found"
        text, why = _shown(payload)
        if why:
            return 400, f"Bad Request: {why}"
        buttons = (payload.get("reply_markup") or {}).get("inline_keyboard", [])
        if (text, buttons) == (found["text"], found["buttons"]):
            return 400, "Bad Request: message is not modified"
        found |= {"text": text, "buttons": buttons}
        return 200, {key: found[key] for key in ("message_id", "date", "text", "chat", "from")}


def _entities(text: str) -> list[Json]:
    """Return what the service marks in a text: names and commands."""
    found: list[Json] = []
    at = 0
    for word in text.split(" "):
        kind = {"@": "mention", "/": "bot_command"}.get(word[:1])
        if kind and len(word) > 1:
            length = len(word.encode("utf-16-le")) // 2
            offset = len(text[:at].encode("utf-16-le")) // 2
            found.append({"type": kind, "offset": offset, "length": length})
        at += len(word) + 1
    return found


def _shown(payload: Json) -> tuple[str, str]:
    """Return a text as people see it, and why the service refuses it."""
    text = str(payload.get("text") or "")
    if payload.get("parse_mode") == "HTML":
        reader = _Html()
        try:
            reader.feed(text)
            reader.close()
        except ValueError as error:
            return "", f"can't parse entities: {error}"
        if reader.open:
            return "", f"can't parse entities: no end of tag {reader.open[-1]}"
        text = "".join(reader.texts)
    if not text.strip():
        return "", "message text is empty"
    if len(text.encode("utf-16-le")) // 2 > TEXT_MAX:
        return "", "message is too long"
    return text, ""


class _Html(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            raise ValueError(f'unsupported start tag "{tag}"')
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ValueError(f'unexpected end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class _Handler(QuietHandler):
    fake: FakeTelegram

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        _, prefix, method = self.path.split("/")
        if prefix != f"bot{TOKEN}":
            self._reply(401, "Unauthorized")
            return
        payload = _payload(body, self.headers.get("content-type") or "")
        fake = self.fake
        with fake.lock:
            faults = fake.faults.get(method)
            fault = faults.popleft() if faults else None
            if fault == "before":
                self._cut()
                return
            if isinstance(fault, int):
                self._reply(fault, "Too Many Requests" if fault == 429 else "Bad Gateway")
                return
            status, result = fake.do(method, payload)
            fake.calls.append((method, payload))
            fake.lock.notify_all()
        if fault == "after":
            self._cut()
            return
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        self._reply(status, result)

    def do_GET(self) -> None:
        """Give a file that `getFile` named."""
        with self.fake.lock:
            data = self.fake.files.get(self.path.rpartition("/")[2])
            faults = self.fake.faults.get("file")
            fault = faults.popleft() if faults else None
            self.fake.calls.append(("file", {"path": self.path}))
            self.fake.lock.notify_all()
        if not self.path.startswith(f"/file/bot{TOKEN}/documents/") or data is None:
            self.answer(404)
        elif isinstance(fault, int):
            self.answer(fault)
        elif fault == "before":
            self._cut()
        elif fault == "after":
            with suppress(OSError):
                self.answer(200, data[: len(data) // 2], {"Content-Length": str(len(data))})
            self._cut()
        else:
            with suppress(OSError):  # Who asked may have had enough.
                self.answer(200, data)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _reply(self, status: int, result: Any) -> None:
        """Answer; whoever asked may have gone away meanwhile."""
        made: Json = {"ok": status == 200}
        if status == 200:
            made["result"] = result
        else:
            made |= {"error_code": status, "description": result}
            if status == 429:
                made["parameters"] = {"retry_after": 1}
        with suppress(OSError):
            self.answer(status, json.dumps(made).encode(), {"Content-Type": "application/json"})


def _payload(body: bytes, kind: str) -> Json:
    """Return the values of a form; the library sends what is no text as JSON in it."""
    made: Json = {}
    if kind.startswith("multipart/"):
        head = f"content-type: {kind}\r\n\r\n".encode()
        for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
            name = part.get_param("name", header="content-disposition")
            data = part.get_payload(decode=True)
            found = part.get_filename()
            made[str(name)] = (found, data) if found else bytes(data or b"").decode()
        return made
    for key, value in parse_qsl(body.decode(), keep_blank_values=True):
        is_json = key in (
            "reply_markup",
            "reply_parameters",
            "link_preview_options",
            "commands",
            "allowed_updates",
        )
        made[key] = json.loads(value) if is_json else value
    return made


@contextmanager
def fake_telegram() -> Iterator[FakeTelegram]:
    made = FakeTelegram()
    handler = type("Handler", (_Handler,), {"fake": made})
    with serving_http(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        made.port = server.server_port
        yield made
