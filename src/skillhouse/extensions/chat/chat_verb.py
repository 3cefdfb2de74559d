"""`skillhouse chat`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack, closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.floor import MissingExtraError
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    add_tools,
    house_of,
    positive,
)
from skillhouse.frontends.cli.person import TerminalChannel, note_changes
from skillhouse.frontends.cli.question import is_terminal
from skillhouse.presentation.text import cut, one_line

if TYPE_CHECKING:
    from skillhouse.extensions.chat.conversation import Answered, ChatConversation
    from skillhouse.extensions.chat.model_choice import Wanted
    from skillhouse.extensions.chat.repl import Commands
    from skillhouse.extensions.chat.screen import Screen
    from skillhouse.extensions.chat.transcript import (
        StoredTranscript,
        Transcript,
        TranscriptLine,
        Transcripts,
    )
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse


class ConversationAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    changed_ms: Count
    place: str
    agent: str
    model: str
    first: str
    problem: str | None


class UsageAnswer(JsonAnswer, frozen=True, kw_only=True):
    requests: Count
    input_tokens: Count
    output_tokens: Count


class ChatAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What came of one request, for `chat --json`."""

    answer: str
    status: str
    reason: str | None
    pending: tuple[str, ...]
    session: str
    skills: list[str]
    usage: UsageAnswer


STDIN_MAX = 1_048_576
NOT_WHOLE = "[this answer is not whole]"
"""The last line of a part of an answer, which must not pass for all of it in a pipe."""

_EXAMPLES = """examples:
  skillhouse chat --model openai:gpt-5
  skillhouse chat --model qwen3 --base-url http://127.0.0.1:11434/v1
  skillhouse chat --resume
  skillhouse chat --model anthropic:claude-sonnet-5 --print "Sum up README.md"
  git diff | skillhouse chat --print "Review this"

The key comes from the provider's usual environment variable. SKILLHOUSE_CHAT_MODEL and
SKILLHOUSE_CHAT_BASE_URL stand for --model and --base-url. Ctrl-C ends an answer, Ctrl-D
the chat; `/help` lists what else a line can say.

--print: 0 the model answered, 1 a call needs approval, or there is no answer or only a part
of one, 2 usage, 3 the model cannot be reached or its package is missing.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="P:NAME", help="provider and name of the model")
    parser.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible address")
    parser.add_argument("--key-variable", metavar="NAME", help="variable that holds the key")
    parser.add_argument("--agent", metavar="NAME", help="with this agent's skills and rules")
    add_tools(parser)
    parser.add_argument(
        "--context-tokens", type=positive, metavar="N", help="summarise what is older than this"
    )
    parser.add_argument(
        "--print", nargs="?", const="", metavar="PROMPT", help="answer once; stdin is added"
    )
    parser.add_argument(
        "--resume", nargs="?", const="", metavar="ID", help="go on with a conversation"
    )
    parser.add_argument("--list", action="store_true", help="list the conversations")
    parser.add_argument("--no-save", action="store_true", help="keep no transcript")
    add_common(parser)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.resume is not None and options.no_save:
        raise UsageError("`--resume` goes on with a transcript, so `--no-save` makes no sense")
    if options.json and options.print is None and not options.list:
        raise UsageError("`--json` goes with `--print` or `--list`")
    channel = TerminalChannel(sys.stdin, terminal)
    with house_of(options, channel=channel) as house:
        note_changes(house.config.state_directory, terminal)
        from skillhouse.extensions.chat.transcript import Transcripts
        from skillhouse.house import BundleRefresh
        from skillhouse.install import RepositoryRefresh

        kept = Transcripts(house.config.state_directory)
        if options.list:
            return _list(kept, options, terminal)
        prompt = _prompt(options)
        if prompt is None and not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
            raise UsageError("a chat needs a terminal; without one use `--print`")
        with RepositoryRefresh(house), BundleRefresh(house):
            return _talk(house, kept, options, terminal, prompt, channel)


def _talk(
    house: Skillhouse,
    kept: Transcripts,
    options: argparse.Namespace,
    terminal: Terminal,
    prompt: Prompt | None,
    channel: TerminalChannel,
) -> int:
    from skillhouse.extensions.chat.pending_build import PendingBuild
    from skillhouse.extensions.chat.repl import Loop, TypedLines, line_reader, start_lines, talk
    from skillhouse.extensions.chat.screen import Screen, shown_logs

    if find_spec("pydantic_ai") is None:
        raise MissingExtraError("chat", "pydantic_ai")
    screen = Screen(
        sys.stdout,
        sys.stderr,
        quiet=prompt is not None,
        width=terminal.width if is_terminal(sys.stderr) else None,
        is_styled=terminal.is_styled and prompt is None,
        is_watched=terminal.is_watched,
    )
    with shown_logs(screen), ExitStack() as stack:
        stack.callback(house.config_reload.subscribe(lambda news: screen.note(one_line(news.text))))
        begun = _begin(house, kept, options, screen, stack)
        if prompt is not None:
            return _one_answer(begun, options, terminal, prompt, stack)
        screen.note(start_lines(begun.asked.where, begun.session_id, begun.agent, begun.before))
        loop = stack.enter_context(Loop())
        stack.callback(lambda: loop.run(house.release_loop))
        opening = stack.enter_context(PendingBuild(begun.commands))
        lines = channel.host = TypedLines(screen, line_reader(opening))
        talk(loop, opening, screen, lines)
    return 0


def _one_answer(
    begun: DeferredChat,
    options: argparse.Namespace,
    terminal: Terminal,
    prompt: Prompt,
    stack: ExitStack,
) -> int:
    from skillhouse.extensions.chat.markdown import rendered
    from skillhouse.extensions.chat.repl import Loop, show

    begun.screen.working("loading the model's package")
    stack.callback(begun.screen.idle)
    commands = begun.commands()
    conversation = commands.conversation
    loop = stack.enter_context(Loop())
    stack.callback(lambda: loop.run(begun.house.release_loop))
    answered = _once(loop, conversation, commands, prompt)
    begun.screen.idle()
    if answered is None:
        return 0
    if options.json:
        terminal.json(_answer(conversation, answered))
    elif answered.text:
        if terminal.is_styled:
            terminal.write(rendered(answered.text, terminal.width))
        else:
            terminal.document(answered.text)
        if answered.status != "ok":
            terminal.line(NOT_WHOLE)
    show(answered, begun.screen)
    if answered.status == "unreachable":
        return 3
    return 1 if answered.pending or answered.status != "ok" else 0


def _once(loop: Any, conversation: Any, commands: Any, prompt: Prompt) -> Answered | None:
    """Answer one prompt; only text of the command line can be a command."""
    from skillhouse.extensions.chat.repl import StoppedError

    if prompt.given.startswith("/") and prompt.piped and not commands.is_skill(prompt.given):
        raise UsageError("only text and `/SKILL` go together with what stdin holds")
    try:
        found: Answered | None = loop.run(
            lambda: (
                commands.take(prompt.given, prompt.piped)
                if prompt.given.startswith("/")
                else conversation.ask(prompt.whole)
            )
        )
    except StoppedError:
        raise KeyboardInterrupt from None
    return found


class DeferredChat(Struct, kw_only=True):
    """A chat for which the library of the models has not been loaded yet."""

    house: Skillhouse
    screen: Screen
    asked: Wanted
    agent: str
    session_id: str
    transcript: Transcript | None
    before: StoredTranscript | None
    context_tokens: int | None
    conversation: ChatConversation | None = None

    def commands(self) -> Commands:
        """Load what the conversation needs, and return it with its commands."""
        # Without it the library prints an advertisement on terminals.
        os.environ["PYDANTIC_AI_NO_BANNER"] = "1"
        try:
            from skillhouse.extensions.chat.conversation import ChatConversation
            from skillhouse.extensions.chat.models import model_of
        except (ModuleNotFoundError, MissingExtraError) as error:
            module = getattr(error, "module", None) or getattr(error, "name", None)
            raise MissingExtraError("chat", module or "pydantic_ai") from error
        from skillhouse.extensions.chat.repl import Commands
        from skillhouse.extensions.chat.stored_messages import known_secrets

        self.house.view(self.agent)
        environment = self.house.config.places.environment
        found = model_of(self.asked, environment)
        self.house.services.enforcement.also_secret = tuple(found.secrets)
        made = ChatConversation(
            self.house,
            found,
            self.screen,
            session_id=self.session_id,
            agent=self.agent,
            transcript=self.transcript,
            known=known_secrets(environment, self.house.services.enforcement.secret_values),
            context_tokens=self.context_tokens,
        )
        if self.before is not None:
            made.restore(self.before)
        if found.notice:
            self.screen.note(found.notice)
        self.conversation = made
        return Commands(made, self.screen)


def _begin(
    house: Skillhouse,
    kept: Transcripts,
    options: argparse.Namespace,
    screen: Screen,
    stack: ExitStack,
) -> DeferredChat:
    """Return the chat that the options describe, a new one or one that goes on."""
    from skillhouse.extensions.chat.model_choice import Wanted, check, choose_model

    environment = house.config.places.environment
    transcript: Transcript | None = None
    before = None
    if options.resume is not None:
        place = str(house.config.places.start)
        transcript, before = kept.resume(kept.find(options.resume, place=place))
        stack.enter_context(closing(transcript))
    head = before.head if before else None
    asked = choose_model(
        Wanted(
            model=options.model or "",
            base_url=options.base_url or "",
            key_variable=options.key_variable or "",
        ),
        head,
        environment,
    )
    check(asked)
    agent = options.agent or (head.agent if head else "default")
    if transcript is None and not options.no_save:
        transcript = kept.begin(
            place=str(house.config.places.start),
            agent=agent,
            model=asked.model,
            base_url=asked.base_url,
            key_variable=asked.key_variable,
        )
        stack.enter_context(closing(transcript))
    if before is not None and before.torn:
        screen.note("the end of the conversation was cut off by a crash; the rest is there")
    begun = DeferredChat(
        house=house,
        screen=screen,
        asked=asked,
        agent=agent,
        session_id=transcript.id if transcript else f"unsaved-{time.time_ns():x}",
        transcript=transcript,
        before=before,
        context_tokens=options.context_tokens,
    )

    def discard_empty() -> None:
        made = begun.conversation
        if transcript is not None and before is None and not (made and made.history):
            transcript.discard()

    stack.callback(discard_empty)
    return begun


class Prompt(Struct, frozen=True, kw_only=True):
    given: str
    piped: str
    """What stdin holds; never a command."""

    @property
    def whole(self) -> str:
        return "\n\n".join(text for text in (self.given, self.piped) if text)


def _prompt(options: argparse.Namespace) -> Prompt | None:
    """Return the one prompt, with what stdin holds; None for a chat."""
    if options.print is None:
        return None
    piped = "" if is_terminal(sys.stdin) else sys.stdin.read(STDIN_MAX + 1)
    if len(piped) > STDIN_MAX:
        raise UsageError(f"stdin has more than {STDIN_MAX} characters")
    made = Prompt(
        given=options.print if options.print.strip() else "",
        piped=piped if piped.strip() else "",
    )
    if not made.whole:
        raise UsageError("expected a prompt after --print or on stdin")
    return made


def _list(kept: Transcripts, options: argparse.Namespace, terminal: Terminal) -> int:
    found = kept.listed()
    if options.json:
        terminal.json_list("conversations", list(map(_listed, found)))
        return 0
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.changed_ms / 1000))
        terminal.line(cut(f"{one.head.id}  {when}  {one_line(one.head.model)}", terminal.width))
        terminal.line(cut(f"  {one_line(one.problem or one.first)}", terminal.width))
    if not found:
        terminal.note("no conversations yet")
    return 0


def _listed(found: TranscriptLine) -> ConversationAnswer:
    head = found.head
    return copied(
        ConversationAnswer,
        head,
        changed_ms=found.changed_ms,
        first=found.first,
        problem=found.problem or None,
    )


def _answer(conversation: ChatConversation, answered: Answered) -> ChatAnswer:
    return ChatAnswer(
        answer=answered.text,
        status=answered.status,
        reason=answered.reason or None,
        pending=tuple(answered.pending),
        session=conversation.session_id,
        skills=[one.skill for one in conversation.skills.activations.newest()],
        usage=UsageAnswer(
            requests=conversation.spent.requests,
            input_tokens=conversation.spent.input_tokens,
            output_tokens=conversation.spent.output_tokens,
        ),
    )


VERBS = {"chat": Verb(_EXAMPLES, _configure, _run)}
