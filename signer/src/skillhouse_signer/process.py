"""The client of the signer: starts its process, sends it requests, sees no key."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import anyio

from skillhouse.floor import DecodeError, MissingExtraError
from skillhouse.registry.passwords import PasswordSource, SignerError
from skillhouse.store import state_server
from skillhouse_signer.keys import KeyInfo, KeyKind, Terms
from skillhouse_signer.keystore import COST
from skillhouse_signer.request import (
    LENGTH,
    Ask,
    KeyList,
    Named,
    NewKey,
    Opening,
    Signature,
    SignerReply,
    SignRequest,
    checked_length,
    framed,
    packed,
    unpacked,
)

ANSWER_SECONDS = 60.0
"""Longest wait for an answer that needs no person: reading libraries on a slow disk."""
PERSON_SECONDS = 300.0
"""Longest wait for a person at the terminal."""
END_SECONDS = 2.0
"""Longest wait for the process to end by itself."""

_PASSED_ON = ("LANG", "LC_ALL", "TERM", "HOME", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
"""Variables that the signer gets: those of the terminal, and of the OS keyring."""

T = TypeVar("T")


class SignerProcess:
    """A `Signer` in a process of its own, started with the first request; for one event loop."""

    def __init__(
        self,
        keystore: Path,
        state: Path,
        *,
        password: PasswordSource | None = None,
        imported: int | None = None,
        environment: Mapping[str, str],
        cost: int = COST,
    ) -> None:
        """Take the places.

        Args:
            keystore: The file of the keys; made with the first key.
            state: The state database, which counts what was spent.
            password: Asked at the terminal when None.
            imported: Descriptor of a private key to import; asked when None.
            cost: log2 of scrypt's N for a keystore that is made.
        """
        self.keystore = keystore
        self.state = state
        self._source = password or PasswordSource()
        self._imported = imported
        self._environment = environment
        self._cost = cost
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._number = 0
        self._lock = anyio.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def sign(self, request: SignRequest) -> Signature:
        """Sign as `Signer.sign`; MissingExtraError when what the key needs is not installed."""
        return await self._ask("sign", request, Signature)

    async def open(self) -> tuple[KeyInfo, ...]:
        """Open the keystore and return its keys, which are as they were sealed."""
        async with self._lock:
            if self._link is not None:
                self.close()
            return await self._start()

    async def new_key(
        self, name: str, kind: KeyKind, *, terms: Terms | None = None, is_import: bool = False
    ) -> KeyInfo:
        """Make a key, or import one from the descriptor or the terminal."""
        wanted = NewKey(name=name, kind=kind, terms=terms or Terms(), is_import=is_import)
        return (await self._ask("new", wanted, KeyList)).keys[0]

    async def new_session(self, name: str, kind: KeyKind, *, terms: Terms, seconds: int) -> KeyInfo:
        """Make a session key: it signs by itself within its terms, for so many seconds."""
        wanted = NewKey(name=name, kind=kind, terms=terms, session_seconds=seconds)
        return (await self._ask("new", wanted, KeyList)).keys[0]

    async def rotate_session(self, name: str) -> KeyInfo:
        """Put a new session key in its place; the old one signs no more."""
        return (await self._ask("rotate", Named(name=name), KeyList)).keys[0]

    async def set_terms(self, name: str, terms: Terms) -> KeyInfo:
        return (await self._ask("terms", Named(name=name, terms=terms), KeyList)).keys[0]

    async def remove_key(self, name: str) -> KeyInfo:
        """Forget a key for good; what it spent stays counted."""
        return (await self._ask("remove", Named(name=name), KeyList)).keys[0]

    async def accept(self) -> None:
        """Accept clock and counters as they are, because a person checked them."""
        await self._ask("accept", Named(name=""), KeyList)

    def close(self) -> None:
        """End the process; what it was doing is done or not at all."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    async def _ask(self, verb: str, body: object, shape: type[T]) -> T:
        async with self._lock:
            if self._link is None:
                await self._start()
            return await self._exchange(verb, body, shape)

    async def _start(self) -> tuple[KeyInfo, ...]:
        """Spawn in the coroutine itself, so on the event loop's thread (decision 10)."""
        if os.name != "posix":
            raise SignerError("signer-gone", "the signer needs Linux or macOS")
        if state_server(self.state) is not None:
            # Its process knows no address, and what a machine counted alone would be no limit.
            raise SignerError(
                "state", "the signer counts in a file of this machine, and the state is on a server"
            )
        password = self._password_descriptor()
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        passed = [theirs.fileno()]
        words = [str(theirs.fileno())]
        for descriptor in (password, self._imported):
            words.append(str(-1 if descriptor is None else descriptor))
            if descriptor is not None:
                passed.append(descriptor)
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork, and no wait.
                (sys.executable, "-I", "-m", "skillhouse_signer", *words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if self._source.kind == "terminal" else subprocess.DEVNULL,
                pass_fds=passed,
                env={k: self._environment[k] for k in _PASSED_ON if k in self._environment},
                cwd="/",
                # A session of its own has no terminal to ask at.
                start_new_session=self._source.kind != "terminal",
            )
            self._link = ours
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if password is not None:
                os.close(password)
        opening = Opening(
            keystore=str(self.keystore.absolute()),
            state=str(self.state.absolute()),
            source="descriptor" if self._source.kind == "variable" else self._source.kind,
            cost=self._cost,
        )
        try:
            return (await self._exchange("open", opening, KeyList)).keys
        except SignerError:
            self.close()
            raise

    def _password_descriptor(self) -> int | None:
        """Return a descriptor to read the password from, which the caller closes."""
        source = self._source
        if source.kind == "descriptor":
            try:
                return os.dup(source.descriptor)
            except OSError as error:
                raise SignerError(
                    "no-password", f"no open descriptor {source.descriptor} for the password"
                ) from error
        if source.kind != "variable":
            return None
        value = self._environment.get(source.variable, "")
        if not value:
            raise SignerError("no-password", f"the variable `{source.variable}` holds no password")
        theirs, ours = os.pipe()
        with os.fdopen(ours, "wb") as file:
            # What does not fit at once is too long for a password, which the signer says.
            os.set_blocking(ours, False)
            file.write(os.fsencode(value)[:8_192])
        return theirs

    async def _exchange(self, verb: str, body: object, shape: type[T]) -> T:
        """Send one request and return its answer; after any fault the process is given up."""
        self._number += 1
        ask = Ask(number=self._number, verb=verb, body=packed(body))
        types_key = isinstance(body, NewKey) and body.is_import and self._imported is None
        asks_person = types_key or (verb in ("open", "new") and self._source.kind == "terminal")
        try:
            # Shielded: half a frame would spoil the next, and a signature in doubt is worse
            # than one that comes late. The time is bounded all the same.
            with anyio.CancelScope(shield=not asks_person):
                with anyio.fail_after(PERSON_SECONDS if asks_person else ANSWER_SECONDS):
                    await self._send(framed(ask))
                    reply = unpacked(await self._receive(), SignerReply)
            if reply.number != ask.number:
                raise DecodeError("an answer to another request")
        except (OSError, DecodeError, TimeoutError) as error:
            self.close()
            raise SignerError(
                "signer-gone",
                "the signer's process ended or did not answer; nothing came of the request, but "
                f"what it spent may be counted ({str(error) or 'time is up'})",
            ) from error
        except BaseException:
            self.close()
            raise
        if reply.code == "missing-extra":
            raise MissingExtraError("signer", reply.message)
        if reply.code:
            raise SignerError(reply.code, reply.message)
        return unpacked(reply.body, shape)

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        link = self._linked()
        while rest:
            try:
                rest = rest[link.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(link)

    async def _receive(self) -> bytes:
        length = checked_length(LENGTH.unpack(await self._exactly(LENGTH.size))[0])
        return await self._exactly(length)

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        link = self._linked()
        while len(data) < size:
            await anyio.wait_readable(link)
            with contextlib.suppress(BlockingIOError):
                chunk = link.recv(size - len(data))
                if not chunk:
                    raise ConnectionResetError("it closed the socket")
                data += chunk
        return bytes(data)

    def _linked(self) -> socket.socket:
        if self._link is None:
            raise ConnectionResetError("it was closed")
        return self._link
