"""The tools `read`, `list`, `write` and `edit`.

`read` gives a page of a file, or of a result that was too long to be given at once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from skillhouse.floor import (
    PathError,
    digest,
    is_below,
    open_beneath,
    open_directory_beneath,
)
from skillhouse.floor.threads import in_thread
from skillhouse.permission import Effect, Permission
from skillhouse.skill import revealed
from skillhouse.tools.call import (
    OUTPUT_MAX,
    PERSISTENCE,
    Excerpt,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    object_schema,
)
from skillhouse.tools.difference import difference
from skillhouse.tools.result_files import (
    Page,
    ResultBound,
    ResultFiles,
    bound_for,
    gets_whole,
    page_of,
)
from skillhouse.tools.skill_text import Facts, cautioned, handed
from skillhouse.tools.tool import Session, Tool
from skillhouse.tools.workspace import Place, Workspace, opened, refusal, skill_directory_of

READ_MAX = 8 * 1_048_576
"""Bytes of a file that is read at all; a result holds a page of it."""
ENTRIES_MAX = 1_000
"""Names of a directory that are listed."""

PATH: Mapping[str, Any] = {
    "type": "string",
    "description": "relative to the workspace, or absolute",
    "minLength": 1,
}
PAGED_AT_ONCE = 262_144
"""Characters of a file of which a page is cut on the event loop: some milliseconds."""


class WorkspaceTool(Tool):
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def workspace(self) -> Workspace:
        return self._workspace


class ListTool(WorkspaceTool):
    name = "list"
    description = "List a directory of the workspace or of a loaded skill; `/` marks directories."
    durable = False
    required_actions = ("list",)
    required_resource = "/*"
    reads_only = True
    schema: Mapping[str, Any] = object_schema({"path": {**PATH, "default": "."}})

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        given = arguments.get("path", ".")
        absolute = self._workspace.absolute(given)
        self._workspace.check_withheld(absolute, given, session)
        base = self._workspace.base_of(absolute, session)
        why = "it is in the workspace or a loaded skill"
        if base is None:
            why = "it is outside the workspace and the loaded skills"
        need = PermissionRequest(
            permission=Permission(action="list", resource=absolute),
            default=Effect.ALLOW if base else Effect.ASK,
            why=why,
        )

        top = base or Path("/")
        real_top = top.resolve()
        relative = os.path.relpath(absolute, top)

        async def run() -> Output:
            try:
                handle = open_directory_beneath(real_top, relative)
            except PathError as error:
                raise self._workspace.not_there(error, given, session) from error
            try:
                with os.scandir(handle) as entries:
                    names = sorted(
                        f"{_shown(entry.name)}{_mark(entry)}"
                        for entry in entries
                        if not self._workspace.is_withheld(
                            os.path.join(absolute, entry.name), session
                        )
                        and not self._workspace.is_leftover(
                            os.path.join(absolute, entry.name), session
                        )
                    )
            finally:
                os.close(handle)
            text = "\n".join(names[:ENTRIES_MAX])
            if len(names) > ENTRIES_MAX:
                text += f"\n[{len(names) - ENTRIES_MAX} more entries]"
            return Output(text=text or "[empty]", data={"entries": names[:ENTRIES_MAX]})

        return Plan(needs=(need,), run=run)


class WriteTool(WorkspaceTool):
    name = "write"
    description = "Write a text file of the workspace, replacing what is there."
    durable = True
    required_actions = ("write",)
    required_resource = "/*"
    schema: Mapping[str, Any] = object_schema(
        {"path": PATH, "content": {"type": "string"}}, required=("path", "content")
    )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        relative = self._workspace.writable(arguments["path"], session)
        content: str = arguments["content"]
        size = len(content.encode())
        return change_plan(
            self._workspace,
            relative,
            held_before(self._workspace, relative),
            content,
            text=f"wrote {size} bytes to {relative}",
            data={"path": relative, "bytes": size},
        )


class EditTool(WorkspaceTool):
    name = "edit"
    description = (
        "Replace `old` by `new` in a text file of the workspace. `old` must occur exactly once, "
        "unless `all` is true."
    )
    durable = True
    required_actions = ("write",)
    required_resource = "/*"
    schema: Mapping[str, Any] = object_schema(
        {
            "path": PATH,
            "old": {"type": "string", "minLength": 1},
            "new": {"type": "string"},
            "all": {"type": "boolean", "default": False},
        },
        required=("path", "old", "new"),
    )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        relative = self._workspace.writable(arguments["path"], session)
        before = text_of(self._workspace.file(arguments["path"], session))
        old, new = arguments["old"], arguments["new"]
        count = before.count(old)
        if count == 0:
            raise RefusedError(f"`old` does not occur in `{relative}`; read the file again")
        if count > 1 and not arguments.get("all"):
            raise RefusedError(f"`old` occurs {count} times in `{relative}`: give more of the text")
        after = before.replace(old, new)
        return change_plan(
            self._workspace,
            relative,
            before.encode(),
            after,
            text=f"replaced {count} in {relative}",
            data={"path": relative, "replaced": count},
        )


def change_plan(
    workspace: Workspace,
    relative: str,
    before: bytes | None,
    after: str,
    *,
    text: str,
    data: Mapping[str, Any],
    also: tuple[PermissionRequest, ...] = (),
) -> Plan:
    """Plan the replacement of a writable file, which holds `before` (None: nothing that can be
    read). `text` is the result for the model, `data` that for programs; `also` is what else it
    needs."""
    new = after.encode()
    expected = None if before is None else digest(before)

    async def run() -> Output:
        # INVARIANT: what is replaced is what a person was shown as replaced.
        replaced(workspace, relative, new, expected=expected)
        return Output(text=text, data=data, detail={"content_digest": digest(new)})

    return Plan(
        needs=(write_need(workspace, relative), *also),
        run=run,
        changes_workspace=True,
        facts=change_facts(before, after, relative),
    )


def read_need(place: Place) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action="read", resource=str(place.path)),
        default=Effect.ASK if place.concern else Effect.ALLOW,
        why=place.concern or "it is in the workspace or a loaded skill",
    )


def write_need(workspace: Workspace, relative: str) -> PermissionRequest:
    """One that acts later is asked about each time."""
    group = workspace.paths.group(relative)
    caution = f"`{relative}` is asked about each time: {group.why}" if group else ""
    if group is None and is_new_directory(workspace, relative):
        top = relative.partition("/")[0]
        caution = f"`{top}` is new here, and some program may take its settings or orders from it"
    return PermissionRequest(
        permission=Permission(action="write", resource=str(workspace.root / relative)),
        default=Effect.ASK,
        why="no rule matches; writing asks by default",
        caution=caution,
        caution_layer=PERSISTENCE,
        may_last=not caution,
    )


def redirection_need(workspace: Workspace, target: str, session: Session) -> PermissionRequest:
    """Return the need of writing to a file by a redirection; RefusedError for what no answer opens.

    What a client runs by itself has the machine's /tmp, as its other commands have.
    """
    try:
        return write_need(workspace, workspace.writable(target, session))
    except RefusedError:
        is_outside = is_below(target, "/tmp") and not is_below(target, workspace.root)  # noqa: S108
        if not (session.is_handed_over and is_outside) or workspace.is_private(target):
            raise
    return PermissionRequest(
        permission=Permission(action="exec-once", resource=f"> {target}"),
        default=Effect.ASK,
        why=f"`{target[:80]}` is outside of the workspace",
        may_last=False,
    )


def is_new_directory(workspace: Workspace, relative: str) -> bool:
    """Whether writing a path would make a directory at the top that no known program has."""
    top = relative.partition("/")[0]
    return bool(workspace.paths.unknown_directory(relative)) and not os.path.lexists(
        workspace.root / top
    )


def held_before(workspace: Workspace, relative: str) -> bytes | None:
    """Return at most `READ_MAX + 1` bytes of what is replaced; None if there is nothing to read.
    Raises RefusedError for a link or what is no file."""
    try:
        handle = open_beneath(workspace.root, relative)
    except PathError as error:
        if error.code in ("not-found", "unreadable"):
            return None
        if error.code in ("path-link", "not-a-file"):
            message = f"`{relative}` is a link or directory and is not replaced"
            raise RefusedError(message) from error
        raise refusal(error, relative) from error
    with os.fdopen(handle, "rb") as file:
        return file.read(READ_MAX + 1)


def change_facts(before: bytes | None, after: str, relative: str) -> tuple[tuple[str, str], ...]:
    if before is None:
        return (("difference", f"a new file of {len(after.encode())} bytes: `{relative}`"),)
    try:
        if len(before) > READ_MAX or "\0" in (text := before.decode()):
            raise ValueError(before[:1])
    except ValueError:
        size = "more than " * (len(before) > READ_MAX) + str(min(len(before), READ_MAX))
        return (("difference", f"replaces a file of {size} bytes that is no text: `{relative}`"),)
    return (("difference", difference(text, after, relative) or "nothing changes"),)


def text_of(place: Place) -> str:
    handle = opened(place)
    with os.fdopen(handle, "rb") as file:
        data = file.read(READ_MAX + 1)
    if len(data) > READ_MAX:
        raise RefusedError(f"`{place.path}` is larger than {READ_MAX} bytes: use exec on a part")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RefusedError(f"`{place.path}` is not a text file") from None


def text_if_any(place: Place) -> str | None:
    try:
        return text_of(place)
    except RefusedError:
        return None


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


def _mark(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "@"
    return "/" if entry.is_dir(follow_symlinks=False) else ""


def replaced(workspace: Workspace, relative: str, data: bytes, *, expected: str | None) -> None:
    """Replace a file in one step, or leave it; RefusedError if it does not hold `expected`."""
    directory, _, name = relative.rpartition("/")
    try:
        parent = open_directory_beneath(workspace.root, directory or ".", create=True)
    except PathError as error:
        raise refusal(error, relative) from error
    temporary = f".{secrets.token_hex(8)}.part"
    try:
        mode = _replaceable(parent, name, relative, expected)
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=parent
        )
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError as error:
        raise RefusedError(
            f"cannot write `{relative}`: {(error.strerror or '').lower()}"
        ) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        os.close(parent)


def _replaceable(parent: int, name: str, relative: str, expected: str | None) -> int:
    try:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(info.st_mode):
        raise RefusedError(f"`{relative}` is a link or directory and is not replaced")
    if expected is not None:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent)
        with os.fdopen(handle, "rb") as file:
            if digest(file.read(READ_MAX + 1)) != expected:
                raise RefusedError(f"`{relative}` has changed meanwhile; read it again")
    return stat.S_IMODE(info.st_mode)


class ReadTool(WorkspaceTool):
    name = "read"
    description = (
        "Read a text file of the workspace or of a loaded skill, or the file of a long result. Use "
        "`offset` and `limit` (lines) for long files."
    )
    durable = False
    required_actions = ("read",)
    required_resource = "/*"
    reads_only = True
    schema: Mapping[str, Any] = object_schema(
        {
            "path": PATH,
            "offset": {"type": "integer", "minimum": 1, "description": "first line, from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "most lines"},
            "column": {
                "type": "integer",
                "minimum": 1,
                "description": "first character of that line, from 1",
            },
        },
        required=("path",),
    )

    def __init__(
        self,
        workspace: Workspace,
        results: ResultFiles | None = None,
        conceal: Callable[[str], str] = str,
    ) -> None:
        """`results` are the long results that it reads too; `conceal` takes secrets out of a text
        before a page is cut from it, so that none is cut through."""
        super().__init__(workspace)
        self._results = results
        self._conceal = conceal

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """A listed skill's SKILL.md needs what loading that skill needs."""
        absolute = self._workspace.absolute(arguments["path"])
        if self._results is not None and self._results.holds(absolute):
            return self._plan_of_result(self._results, absolute, arguments, session)
        # As it is written, and where links in the workspace lead.
        names = (absolute, os.path.realpath(absolute))
        skill = next((s for s in session.visible.skills if s.file in names), None)
        needs: tuple[PermissionRequest, ...] = ()
        if skill is not None:
            needs = session.needs_of(skill)
            session = session.with_loaded(skill)
        place = self._workspace.file(arguments["path"], session)
        needs += (read_need(place),)
        home = skill_directory_of(place.path, place.base)
        known = None if home is None else text_if_any(place)
        facts: Facts = ()
        if home is not None and known is not None:
            needs, facts = cautioned(
                session, needs, skill=skill or home, file=str(place.path), text=known
            )

        # A skill's own text is given as loading it gives it.
        excerpt: Excerpt = "head" if skill is None else "whole"
        is_whole = skill is not None or gets_whole(session)
        bound = ResultBound(OUTPUT_MAX) if is_whole else bound_for(session.client_info)

        async def run() -> Output:
            # INVARIANT: of a skill's file, the text that is handed over is the one that was judged.
            text = text_of(place) if known is None else known
            show = str if home is None else handed
            return await self._page(
                text, str(place.path), arguments, bound=bound, show=show, excerpt=excerpt
            )

        return Plan(needs=needs, run=run, facts=facts)

    def _plan_of_result(
        self, results: ResultFiles, path: str, arguments: Mapping[str, Any], session: Session
    ) -> Plan:
        """Plan to read what a call of this conversation returned; a rule may still deny it."""
        results.check(session, path)
        need = PermissionRequest(
            permission=Permission(action="read", resource=path),
            default=Effect.ALLOW,
            why="it is a result of this conversation",
        )

        async def run() -> Output:
            text = await in_thread(lambda: results.text(session, path))
            return await self._page(text, path, arguments, bound=bound_for(session.client_info))

        return Plan(needs=(need,), run=run)

    async def _page(
        self,
        text: str,
        path: str,
        arguments: Mapping[str, Any],
        *,
        bound: ResultBound,
        show: Callable[[str], str] = str,
        excerpt: Excerpt = "head",
    ) -> Output:
        page = Page(
            line=arguments.get("offset", 1),
            column=arguments.get("column", 1),
            limit=arguments.get("limit"),
        )

        def output() -> Output:
            lines = self._conceal(text).splitlines(keepends=True)
            part = page_of(lines, page, bound, shown=lambda part: revealed(show(part)))
            data = {"path": path, "lines": len(lines)}
            return Output(text=show(part), data=data, excerpt=excerpt)

        return output() if len(text) <= PAGED_AT_ONCE else await in_thread(output)
