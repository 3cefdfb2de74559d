"""The tool `send_file`: a file of the workspace, for the person in the chat of the conversation.

The rules of `read` decide: what a model may not read it does not send. What is sent is a copy, so
that the message has the bytes that were judged, whenever it goes out.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from skillhouse.extensions.channels.chat_channel import OutgoingFile
from skillhouse.floor import make_private
from skillhouse.floor.threads import in_thread
from skillhouse.tools import Output, Plan, ReadTool, RefusedError, Tool, object_schema
from skillhouse.tools.files import PATH
from skillhouse.tools.workspace import opened

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse
    from skillhouse.tools import Session
    from skillhouse.tools.workspace import Place

SEND_FILE = "send_file"
FOLDER = "bot-files"
"""Directory of the state for copies that wait to be sent."""
WAITING_MAX = 20
NAME_CHARACTERS = 100


class FileSender(Protocol):
    """What the tool has of the gateway."""

    def file_max(self, session_id: str) -> int: ...

    async def send_file(self, session_id: str, file: OutgoingFile) -> None: ...


class SendFileTool(Tool):
    """Offered in the bot's conversations alone."""

    name = SEND_FILE
    description = (
        "Send a file of the workspace to the person in this chat, as it is. It arrives before your "
        "answer."
    )
    durable = True
    is_unlisted = True
    required_actions = ("read",)
    required_resource = "/*"
    schema: Mapping[str, Any] = object_schema({"path": PATH}, required=("path",))

    def __init__(self) -> None:
        """Send nothing yet: the `Skillhouse` that it is a tool of is made after it."""
        self.house: Skillhouse | None = None
        self.gateway: FileSender | None = None

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        house, gateway = self.house, self.gateway
        most = 0 if gateway is None else gateway.file_max(session.id)
        if house is None or gateway is None or not most:
            raise RefusedError("there is no chat here to which a file can be sent")
        path = arguments["path"]
        tools = house.tools(agent=session.agent)
        reader = next((one for one in tools if isinstance(one, ReadTool)), None)
        if reader is None:
            raise RefusedError("denied: a file is sent where `read` is offered", denied=True)
        needs = reader.plan({"path": path}, session).needs
        place = reader.workspace.file(path, session)
        folder = house.config.state_directory / FOLDER
        enforcement = house.services.enforcement

        async def run() -> Output:
            file, digest = await in_thread(
                lambda: _copied(place, folder, most, enforcement.secret_values)
            )
            await gateway.send_file(session.id, file)
            return Output(
                text=f"`{place.relative}` is on its way, {file.size} bytes.",
                data={"path": str(place.path), "bytes": file.size},
                detail={"path": str(place.path), "bytes": file.size, "digest": digest},
            )

        return Plan(needs=needs, run=run, title=f"send the file {place.relative}")


def _copied(
    place: Place, folder: Path, most: int, secret_values: Iterable[str]
) -> tuple[OutgoingFile, str]:
    """Copy the file that was judged; return the copy and the digest of its bytes."""
    make_private(folder)
    if len(os.listdir(folder)) >= WAITING_MAX:
        raise RefusedError("too many files wait to be sent; try again when they are there")
    with os.fdopen(opened(place), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise RefusedError(f"`{place.relative}` is larger than the {most} bytes that can be sent")
    if not data:
        raise RefusedError(f"`{place.relative}` is empty, and the service takes no such file")
    if any(value and value.encode() in data for value in secret_values):
        raise RefusedError(f"denied: `{place.relative}` holds a secret of skillhouse", denied=True)
    copy = folder / secrets.token_hex(16)
    handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as kept:
        kept.write(data)
        kept.flush()
        os.fsync(kept.fileno())
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return OutgoingFile(path=str(copy), name=_shown_name(place), size=len(data)), digest


def _shown_name(place: Place) -> str:
    """Return the file's name without what is invisible or turns the order of its letters."""
    name = os.path.basename(place.relative)
    kept = "".join(one if unicodedata.category(one)[0] not in "CZ" else " " for one in name)
    stem, dot, end = " ".join(kept.split()).rpartition(".")
    return (stem[:NAME_CHARACTERS] + dot + end[:20]) or "file"


def forget_copies(folder: Path, kept: Iterable[str]) -> None:
    """Remove the copies that no message waits with, of a process that was killed."""
    waiting = {os.path.basename(path) for path in kept}
    if folder.is_dir():
        for name in os.listdir(folder):
            if name not in waiting:
                (folder / name).unlink(missing_ok=True)
