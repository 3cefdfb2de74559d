"""Paths by which a file acts later: what agents, editors, shells and git obey, in two classes.

Names are compared as the most forgiving file system takes them (`spelled`), at any depth, and mean
what is below them too.
"""

from __future__ import annotations

import enum
import functools
import re
import unicodedata
from collections.abc import Callable

from msgspec import Struct

from skillhouse.floor.client_paths import CLIENT_PATHS
from skillhouse.floor.regex import regex
from skillhouse.floor.secret_names import (
    NEVER_WRITTEN,
    PROTECTED_NAMES,
    end_filter,
    path_pattern,
)


class PathClass(enum.StrEnum):
    NEVER = "never"
    """No tool and no command writes it."""
    ASKED = "asked"
    """A person is asked each time."""


class PathGroup(Struct, frozen=True, kw_only=True):
    """Paths that act later in the same way."""

    patterns: tuple[str, ...]
    """`*` is within a name; a `/` at the beginning is the top of the workspace."""
    path_class: PathClass
    why: str
    """What obeys them, for a question or a refusal."""
    source: str
    """Where that is documented."""


def _group(
    path_class: PathClass, why: str, source: str, names: str, more: tuple[str, ...] = ()
) -> PathGroup:
    return PathGroup(
        patterns=(*(name.strip() for name in names.split(",")), *more),
        path_class=path_class,
        why=why,
        source=source,
    )


_NEVER, _ASKED = PathClass.NEVER, PathClass.ASKED

FIXED = _group(
    _NEVER,
    "git, keys and skillhouse's own files",
    "gitrepository-layout(5), gitmodules(5); decision 0169",
    ".git, .gitconfig, .git-credentials, .config/git, .skillhouse, skillhouse.toml, "
    ".config/skillhouse, .local/state/skillhouse, authorized_keys",
)
"""What no setting moves to another class. Secrets belong to it as well."""

PATH_GROUPS: tuple[PathGroup, ...] = (
    FIXED,
    PathGroup(
        patterns=PROTECTED_NAMES,
        path_class=_NEVER,
        why="secrets, and configuration that starts programs",
        source="sandbox-runtime README, mandatory deny paths; git-config(1)",
    ),
    _group(
        _NEVER,
        "a coding agent starts MCP servers and hooks from it",
        "opencode.ai/docs/config, code.claude.com/docs/en/settings, docs.roocode.com MCP, "
        "kiro.dev/docs/hooks, qwenlm.github.io/qwen-code-docs settings, docs.continue.dev config, "
        "aider.chat/docs/config, docs.windsurf.com cascade, docs.openclaw.ai, and the clients of "
        "reference/standard.md section 5",
        ".cursor-plugin, .windsurf, .codeium, .kiro, .continue, .continuerc.json, "
        ".aider.conf.yml, .amazonq, .augment, .junie, .trae, .factory, .openhands, .hermes, "
        ".openclaw, .letta, .kimi, .qoder, .codebuddy, .github/hooks, "
        ".vs/mcp.json, mcp.json, mcp_config.json, .tabnine, .rovodev, .iflow, .grok, .agent, "
        ".zencoder, .eca, firebender.json",
        CLIENT_PATHS,
    ),
    _group(
        _NEVER,
        "an editor runs tasks, settings or extensions from it",
        "zed.dev/docs/tasks, containers.dev json reference, code.visualstudio.com workspaces and "
        "tasks, vim 'exrc', emacs dir-locals",
        ".zed, .devcontainer, .devcontainer.json, .fleet, .theia, *.code-workspace, "
        "*.sublime-project, .dir-locals.el, .dir-locals-2.el, .vimrc, .gvimrc, .exrc, .vim, "
        ".nvimrc, .nvim.lua, .lazy.lua, .emacs, .emacs.d, .config/nvim, .config/emacs, "
        ".config/zed, .config/code, .vscode-server, .vscode-insiders, "
        "library/application support/code",
    ),
    _group(
        _NEVER,
        "a tool runs programs from it when a directory is entered, a commit made or a build begun",
        "direnv.net, mise.jdx.dev/configuration, typicode.github.io/husky, pre-commit.com, "
        "lefthook.dev, doc.rust-lang.org/cargo/reference/config, yarnpkg.com/configuration/yarnrc, "
        "pnpm.io/pnpmfile, bun.com/docs/runtime/bunfig, hgrc(5), maven.apache.org/settings",
        ".envrc, mise.toml, mise.*.toml, .mise.toml, .mise.*.toml, .mise, .rtx.toml, "
        ".config/mise, .config/direnv, .husky, .pre-commit-config.yaml, .pre-commit-config.yml, "
        "lefthook.yml, lefthook.yaml, lefthook.toml, lefthook.json, .lefthook, .lefthook.yml, "
        ".lefthook.yaml, .lefthook.toml, .overcommit.yml, .githooks, .cargo/config.toml, "
        ".cargo/config, .yarnrc.yml, .yarnrc, .yarn/releases, .yarn/plugins, .pnpmfile.cjs, "
        ".pnpmfile.js, .pnpmfile.mjs, bunfig.toml, .hg/hgrc, .hgrc, .sl/config, "
        ".jj/repo/config.toml, .jj/config.toml, .gradle/init.d, .gradle/init.gradle, "
        ".gradle/init.gradle.kts, .m2/settings.xml",
    ),
    _group(
        _NEVER,
        "a shell or an interpreter runs it when it starts",
        "bash(1), zsh(1), fish(1), tcsh(1), ksh(1) on startup files; readline(3), gdb(1), pdb, "
        "irb, R Startup, psql(1), tmux(1), screen(1)",
        ".bash_aliases, .bash_logout, .zlogin, .zlogout, .login, .logout, .cshrc, .tcshrc, .kshrc, "
        ".mkshrc, .config/fish, .config/zsh, .config/nushell, .config/bash, .config/powershell, "
        ".oh-my-zsh, .inputrc, .tmux.conf, .config/tmux, .screenrc, .gdbinit, .lldbinit, .pdbrc, "
        ".irbrc, .pryrc, .rprofile, .psqlrc, .sqliterc, .curlrc, .wgetrc, .ghci, .iex.exs, "
        ".ocamlinit, .octaverc, .lesskey, .mailcap, .wezterm.lua, .config/lazygit, "
        ".config/starship.toml, .config/gh",
    ),
    _group(
        _NEVER,
        "the session starts programs from it",
        "systemd.unit(5), environment.d(5), Desktop Autostart Specification, launchd.plist(5), "
        "dbus-daemon(1), crontab(1), pam_env(8), X(7)",
        ".config/autostart, .config/systemd, .local/share/systemd, .config/environment.d, "
        ".config/plasma-workspace, .config/upstart, .local/share/dbus-1, "
        ".local/share/applications, .local/bin, crontab, .crontab, .pam_environment, .xprofile, "
        ".xinitrc, .xsession, .xsessionrc, library/launchagents, library/launchdaemons",
    ),
    _group(
        _ASKED,
        "coding agents obey it as instructions",
        "agents.md, code.claude.com/docs/en/memory, geminicli.com/docs/cli/gemini-md, "
        "code.visualstudio.com custom instructions, cursor.com/docs/context/rules, "
        "docs.windsurf.com rules, docs.cline.bot clinerules, zed.dev/docs/ai/rules, goose hints",
        "agents.md, agents.override.md, agent.md, claude.md, claude.local.md, gemini.md, qwen.md, "
        "warp.md, crush.md, hermes.md, .hermes.md, .goosehints, .cursorrules, .windsurfrules, "
        ".clinerules, .roorules, .rules, .github/copilot-instructions.md, .github/instructions, "
        ".github/prompts, .github/agents, .github/chatmodes",
    ),
    _group(
        _ASKED,
        "some client finds skills there, or which ones are installed",
        "the roots of the shipped profiles; reference/standard.md section 5",
        "skill.md, .github/skills, .skills, /skill, /skills, /workspace/skills, skills.lock, "
        "skills-lock.json",
    ),
    _group(
        _ASKED,
        "a build or package tool runs commands from it",
        "GNU make manual 3.2, docs.npmjs.com package-json scripts, getcomposer.org scripts, "
        "just.systems, taskfile.dev, docs.deno.com tasks, asdf-vm.com",
        "makefile, gnumakefile, bsdmakefile, package.json, composer.json, deno.json, deno.jsonc, "
        "justfile, .justfile, taskfile.yml, taskfile.yaml, rakefile, rakefile.rb, .tool-versions",
    ),
    _group(
        _ASKED,
        "the server of the repository runs it with its secrets",
        "docs.github.com workflow syntax, docs.gitlab.com/ci/yaml, circleci.com, forgejo.org and "
        "the manuals of the other services",
        ".github/workflows, .github/actions, .gitlab-ci.yml, .gitlab/ci, .circleci, .travis.yml, "
        "azure-pipelines.yml, jenkinsfile, bitbucket-pipelines.yml, .drone.yml, .woodpecker.yml, "
        ".woodpecker, .buildkite, .forgejo/workflows, .gitea/workflows, appveyor.yml, "
        ".appveyor.yml, .cirrus.yml, .tekton, cloudbuild.yaml",
    ),
    _group(
        _ASKED,
        "an environment in which it opens by itself runs commands from it",
        "gitpod.io, codesandbox.io, firebase.google.com/docs/studio, docs.replit.com, devfile.io",
        ".gitpod.yml, .gitpod.dockerfile, .codesandbox, .idx, .replit, replit.nix, devfile.yaml, "
        ".devfile.yaml, forge.yaml, .stackblitzrc",
    ),
    _group(
        _ASKED,
        "its name has the shape of settings from which programs start others",
        "names of MCP clients' files, of run commands (`rc`) and of the XDG Base Directory",
        "*mcp*.json, *mcp*.jsonc, *mcp*.toml, *mcp*.yaml, *mcp*.yml, .*rc, .*rc.js, .*rc.cjs, "
        ".*rc.mjs, .*rc.ts, .*rc.lua, .*rc.json, .*rc.toml, .*rc.yaml, .*rc.yml, .rspec, .config",
    ),
    _group(
        _ASKED,
        "git picks filters and merge drivers by it",
        "gitattributes(5)",
        ".gitattributes",
    ),
)
"""The first group that has a path decides."""

_EMPTY = regex(r"/(?:\.?/)+")

DEPENDENCIES = frozenset(
    {"node_modules", "site-packages", "dist-packages", ".venv", "venv", ".tox", ".nox", ".yarn"}
)
"""Directories of installed packages, which bring such files of their own: a command that
changes them could change the packages' code as well."""


class PersistentPaths(Struct, frozen=True):
    """The table, as an operator has it."""

    asked: tuple[str, ...] = ()
    """Paths of the class `never` that a person is asked about instead."""

    def group(self, relative: str) -> PathGroup | None:
        """Return the group of a path below the workspace, or None for any other file.

        >>> PersistentPaths().group("sub/.ENVRC").path_class.value
        'never'
        >>> PersistentPaths((".envrc",)).group(".envrc").path_class.value
        'asked'
        >>> PersistentPaths().group("src/main.py")
        """
        text = spelled(_EMPTY.sub("/", relative))
        found = next((group for group, regex in _groups() if regex.search(text)), None)
        if found is None or found.path_class is _ASKED or not self.asked:
            return found
        if _matcher(FIXED.patterns).search(text) or _matcher(NEVER_WRITTEN).search(text):
            return found
        if _matcher(self.asked).search(text):
            return PathGroup(
                patterns=self.asked, path_class=_ASKED, why=found.why, source="the configuration"
            )
        return found

    def leads_to_group(self, relative: str) -> bool:
        """Whether some path below this one is in a group, though this one is in none.

        >>> PersistentPaths().leads_to_group("sub/.github"), PersistentPaths().leads_to_group("src")
        (True, False)
        """
        return _above_groups().fullmatch(spelled(_EMPTY.sub("/", relative))) is not None

    @staticmethod
    def unknown_directory(relative: str) -> str:
        """Return the directory at the top that a path is in, where it has a dot and is none of
        those known: agents, editors and tools of which there is no list have theirs there. Else "".

        >>> PersistentPaths.unknown_directory(".foo/settings.json")
        '.foo'
        >>> PersistentPaths.unknown_directory(".pytest_cache/x")
        ''
        """
        top, sign, _ = spelled(relative).partition("/")
        is_hidden = bool(sign) and top[:1] == "." and top not in (".", "..")
        return top if is_hidden and _KNOWN_DIRECTORIES.fullmatch(top) is None else ""

    def is_never(self, relative: str) -> bool:
        # Each pattern is compiled at its first use: those of other classes decide nothing here.
        text = spelled(_EMPTY.sub("/", relative))
        never = (regex for group, regex in _groups() if group.path_class is _NEVER)
        if not any(regex.search(text) for regex in never):
            return False
        group = self.group(relative)
        return group is not None and group.path_class is _NEVER

    def is_asked(self, relative: str) -> bool:
        group = self.group(relative)
        return group is not None and group.path_class is _ASKED


_KNOWN_DIRECTORIES = regex(
    r"\.(?:github|gitlab|forgejo|gitea|circleci|changeset|changes|well-known|venv.*|tox|nox|eggs|next|"
    r"nuxt|svelte-kit|astro|output|turbo|nx|vite|angular|expo|serverless|aws-sam|docusaurus|vitepress|"
    r"vuepress|storybook|nyc_output|coverage|hypothesis|benchmarks|terraform|dart_tool|gradle|kotlin|"
    r"ipynb_checkpoints|bundle|build|dist|tmp|temp|trash.*|data|local|static|assets|docs|test.*|"
    r"reuse|licenses?|debug|logs?|run|out|output|obj|bin|wrangler|vercel|netlify|firebase|sst|tap|"
    r"stack-work|cabal|lake|elixir_ls|cargo|rustup|npm|pnpm-store|yarn|pytest_cache|.*cache.*|.*[_-]tmp)"
)
"""Directories of caches, builds and forges, by the programs that make them."""


def named(patterns: tuple[str, ...], relative: str) -> bool:
    """Whether a path, or a directory above it, is one that a pattern of the table's kind means.

    >>> named(("/AGENTS.md",), "agents.md"), named(("/AGENTS.md",), "sub/AGENTS.md")
    (True, False)
    """
    return bool(patterns) and _matcher(patterns).search(spelled(relative)) is not None


def name_filter(paths: PersistentPaths) -> Callable[[str], bool]:
    """Return what says of a name whether a path of the table may end with it.

    Names that a file system may take for others pass as well; `PersistentPaths.group` decides.

    >>> [name_filter(PersistentPaths())(name) for name in ("AGENTS.md", "config.toml", "main.py")]
    [True, True, False]
    """
    return _name_filter(paths.asked)


@functools.cache
def _name_filter(asked: tuple[str, ...]) -> Callable[[str], bool]:
    may_end = end_filter((*(p for group in PATH_GROUPS for p in group.patterns), *asked))

    def may_persist(name: str) -> bool:
        text = name.casefold()
        is_odd = text.endswith((" ", ".")) or "~" in text or ":" in text or not text.isascii()
        return is_odd or may_end(text)

    return may_persist


def spelled(relative: str) -> str:
    """Return a path as the most forgiving file system takes it.

    HFS+ and APFS fold case and pass over some invisible characters; NTFS passes over dots and
    blanks at the end of a name and what follows a colon, and calls `.git` also `git~1`
    (CVE-2014-9390, CVE-2019-1352).

    >>> spelled("a/.G\u200cIT. /hooks"), spelled("GIT~1/config")
    ('a/.git/hooks', '.git/config')
    """
    return "/".join(_name(part) for part in relative.split("/"))


def _name(part: str) -> str:
    if part.isascii():
        text = part.casefold().split(":", 1)[0].rstrip(" .")
    else:
        visible = "".join(c for c in part if unicodedata.category(c) != "Cf")
        text = unicodedata.normalize("NFC", visible).casefold().split(":", 1)[0].rstrip(" .")
    return ".git" if text == "git~1" else text or part


@functools.cache
def _groups() -> tuple[tuple[PathGroup, re.Pattern[str]], ...]:
    return tuple((group, _matcher(group.patterns)) for group in PATH_GROUPS)


_matcher = functools.cache(path_pattern)


@functools.cache
def _above_groups() -> re.Pattern[str]:
    above: dict[str, None] = {}
    for text in (pattern for group in PATH_GROUPS for pattern in group.patterns):
        parts = text.lstrip("/").casefold().split("/")
        start = "" if text.startswith("/") else "(?:.*/)?"
        names = (start + re.escape("/".join(parts[:end])) for end in range(1, len(parts)))
        above.update(dict.fromkeys(names))
    return re.compile("|".join(above).replace(r"\*", "[^/]*"), re.DOTALL)
