"""Git repositories of skills made by script after the shapes of public ones.

Each has the layout, manifests, names, links and modes that its model has (or had, where an issue of
`npx skills` is about them); the texts are ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.registry.sources import make_repository

LEFT_OUT = ("con.txt", "a:b.md", "ends.", "x" * 130 + ".md", "cafe\u0301.md", "back\\slash.md")
"""Names of files that mean another file, or none, on one of the systems: they are left out."""
REFUSED: Mapping[str, Mapping[str, str]] = {
    "monorepo": {
        # Bytes that each reader takes for other letters: what is shown would not be what is read.
        "skills/latin": "encoding",
    }
}
"""Skills that `npx skills` installs and we refuse, each with the code that we give."""
SECOND: Mapping[str, Mapping[str, str]] = {
    "marketplace": {"plugins/frontend/skills/a11y": "same-name"},
}
"""Skills whose name another one has that is installed: which one is chosen differs."""
INSIDE: Mapping[str, Collection[str]] = {
    "root-and-nested": ("assets/starter",),
    "monorepo": ("skills/category/outer/nested",),
}
"""What `--full-depth` takes for skills: files of the skill around them, which come with it."""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


@dataclass
class Shape:
    """The files of one repository: text, bytes, links and what may be run."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)

    def put(self, path: str, content: str | bytes = "Some text.\n") -> None:
        self.files[path] = content.encode() if isinstance(content, str) else content

    def run(self, path: str, content: str = "#!/bin/sh\necho done\n") -> None:
        self.put(path, content)
        self.programs.add(path)

    def skill(self, directory: str, name: str = "", *, head: str = "", body: str = "") -> None:
        name = name or directory.rpartition("/")[2]
        head = head or f"name: {name}\ndescription: About {name}. Use it when asked.\n"
        place = f"{directory}/" * bool(directory)
        self.put(f"{place}SKILL.md", f"---\n{head}---\n\n# {name}\n\n{body or 'Do it.'}\n")

    def json(self, path: str, value: object) -> None:
        self.put(path, json.dumps(value, indent=2) + "\n")

    def write(self, place: Path) -> Path:
        for path, content in self.files.items():
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            if path in self.programs:
                file.chmod(0o755)
        for path, target in self.links.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).symlink_to(target)
        return make_repository(place)


def anthropics(made: Shape) -> None:
    """Made after anthropics/skills: one folder of skills, a template, the standard, plugins."""
    documents = ("docx", "pdf", "pptx", "xlsx")
    examples = (
        "algorithmic-art", "brand-guidelines", "canvas-design", "doc-coauthoring",
        "frontend-design", "internal-comms", "mcp-builder", "skill-creator",
        "slack-gif-creator", "theme-factory", "web-artifacts-builder", "webapp-testing",
    )  # fmt: skip
    for name in (*documents, *examples):
        made.skill(
            f"skills/{name}",
            head=f'name: {name}\ndescription: "About {name}: use it when asked."\n'
            "license: Complete terms in LICENSE.txt\n",
        )
        made.put(f"skills/{name}/LICENSE.txt")
    for name in documents:
        made.put(f"skills/{name}/scripts/office/schemas/ecma/fouth-edition/opc.xsd", "<xsd/>\n")
        made.put(f"skills/{name}/scripts/__init__.py", "")
        made.put(f"skills/{name}/scripts/check.py", "print('checked')\n")
    made.put("skills/canvas-design/canvas-fonts/Arsenal-Bold.ttf", bytes(range(256)) * 9)
    made.put("skills/skill-creator/agents/grader.md")
    made.put("skills/skill-creator/assets/eval_review.html", "<p>text</p>\n")
    made.put("skills/theme-factory/theme-showcase.pdf", b"%PDF-1.4\n" + PNG)
    made.run("skills/web-artifacts-builder/scripts/init-artifact.sh")
    made.put("skills/web-artifacts-builder/scripts/shadcn-components.tar.gz", b"\x1f\x8b" + PNG)
    made.put("skills/mcp-builder/reference/node_mcp_server.md")
    made.skill(
        "template",
        head="name: template-skill\ndescription: Replace with description of the skill.\n",
    )
    made.put("spec/agent-skills-spec.md")
    made.put("README.md")
    made.put("THIRD_PARTY_NOTICES.md")
    plugins = {"document-skills": documents, "example-skills": examples}
    made.json(
        ".claude-plugin/marketplace.json",
        {
            "name": "anthropic-agent-skills",
            "metadata": {"version": "1.0.0"},
            "plugins": [
                {
                    "name": name,
                    "source": "./",
                    "strict": False,
                    "skills": [f"./skills/{one}" for one in skills],
                }
                for name, skills in plugins.items()
            ],
        },
    )


def vercel(made: Shape) -> None:
    """Made after vercel-labs/agent-skills: names that differ from folders, metadata.json, zips."""
    named = {
        "composition-patterns": "vercel-composition-patterns",
        "deploy-to-vercel": "deploy-to-vercel",
        "react-best-practices": "vercel-react-best-practices",
        "react-native-skills": "vercel-react-native-skills",
        "react-view-transitions": "vercel-react-view-transitions",
        "vercel-cli-with-tokens": "vercel-cli-with-tokens",
        "web-design-guidelines": "web-design-guidelines",
    }
    for folder, name in named.items():
        made.skill(
            f"skills/{folder}",
            head=f"name: {name}\ndescription: About {name}. Triggers on tasks like it.\n"
            "metadata:\n  author: vercel\n  version: '1.0.0'\n",
            body="See [https://react.dev](https://react.dev) and `$ARGUMENTS`.",
        )
    for folder in ("composition-patterns", "react-best-practices", "react-native-skills"):
        made.json(f"skills/{folder}/metadata.json", {"version": "1.0.0", "references": []})
        made.put(f"skills/{folder}/AGENTS.md")
        made.put(f"skills/{folder}/README.md")
        for rule in ("_sections.md", "_template.md", "async-parallel.md"):
            made.put(f"skills/{folder}/rules/{rule}")
    made.run("skills/deploy-to-vercel/resources/deploy.sh")
    made.skill("skills/claude.ai/vercel-deploy-claimable", "vercel-deploy")
    made.run("skills/claude.ai/vercel-deploy-claimable/scripts/deploy.sh")
    made.put("skills/claude.ai/vercel-deploy-claimable.zip", b"PK\x03\x04" + PNG)
    made.json("packages/react-best-practices-build/package.json", {"private": True})
    made.put("packages/react-best-practices-build/src/build.ts", "export {}\n")
    made.put("AGENTS.md")
    made.links["CLAUDE.md"] = "AGENTS.md"


def superpowers(made: Shape) -> None:
    """Made after obra/superpowers: a plugin with manifests of several clients, hooks, commands."""
    names = (
        "brainstorming", "dispatching-parallel-agents", "executing-plans",
        "finishing-a-development-branch", "receiving-code-review", "requesting-code-review",
        "subagent-driven-development", "systematic-debugging", "test-driven-development",
        "using-git-worktrees", "using-superpowers", "verification-before-completion",
        "writing-plans", "writing-skills",
    )  # fmt: skip
    for name in names:
        made.skill(f"skills/{name}", body="<EXTREMELY-IMPORTANT>\nRead it.\n</EXTREMELY-IMPORTANT>")
    made.run("skills/systematic-debugging/find-polluter.sh")
    made.put("skills/systematic-debugging/CREATION-LOG.md")
    made.put("skills/writing-skills/examples/CLAUDE_MD_TESTING.md")
    made.put("skills/writing-skills/graphviz-conventions.dot", "digraph {}\n")
    made.run("skills/writing-skills/render-graphs.js", "#!/usr/bin/env node\n")
    made.put("skills/requesting-code-review/code-reviewer.md")
    made.run("skills/brainstorming/scripts/start-server.sh")
    made.put("skills/brainstorming/scripts/server.cjs", "module.exports = {}\n")
    made.json(".claude-plugin/plugin.json", {"name": "superpowers", "version": "5.0.0"})
    made.json(
        ".claude-plugin/marketplace.json",
        {
            "name": "superpowers-dev",
            "plugins": [{"name": "superpowers", "version": "5.0.0", "source": "./"}],
        },
    )
    made.json(".cursor-plugin/plugin.json", {"name": "superpowers", "skills": "./skills/"})
    made.json("gemini-extension.json", {"name": "superpowers", "contextFileName": "GEMINI.md"})
    made.put(".codex/INSTALL.md")
    made.put(".opencode/plugins/superpowers.js", "export default {}\n")
    made.put("agents/code-reviewer.md", "---\nname: code-reviewer\ndescription: Reviews.\n---\n")
    made.put("commands/brainstorm.md", "---\ndescription: Deprecated\n---\n")
    made.json("hooks/hooks.json", {"hooks": {"SessionStart": []}})
    made.run("hooks/session-start")
    made.run("tests/skill-triggering/run-all.sh")
    made.put("GEMINI.md", "@./skills/using-superpowers/SKILL.md\n")
    made.links["AGENTS.md"] = "CLAUDE.md"
    made.put("CLAUDE.md")


def root_and_nested(made: Shape) -> None:
    """Made after vercel-labs/skills#57, gitlab-cli-skills#72: a skill at the top, others inside."""
    made.skill("", "gitlab-cli", body="Each command has a skill of its own below skills/.")
    for name in ("glab-auth", "glab-ci", "glab-mr", "glab-repo"):
        made.skill(f"skills/{name}")
        made.put(f"skills/{name}/references/commands.md")
    made.run("skills/glab-ci/scripts/ci-debug.sh")
    made.skill("assets/starter", "starter")
    made.skill("examples/other")
    made.put("README.md")
    made.put("scripts/__pycache__/tool.cpython-312.pyc", PNG)
    made.run("scripts/sync.sh")
    made.put(".github/workflows/ci.yml", "on: push\n")


def client_folders(made: Shape) -> None:
    """Made after projects with a folder for each client, and links that share one of them."""
    for name in ("add-migration", "release-notes", "review-pr"):
        made.skill(f".agents/skills/{name}")
    made.put(".agents/skills/review-pr/references/checklist.md")
    made.links[".claude/skills"] = "../.agents/skills"
    made.skill(".codex/skills/codex-only")
    made.links[".codex/skills/review-pr"] = "../../.agents/skills/review-pr"
    made.skill(".github/skills/triage")
    made.links[".github/skills/triage/LICENSE"] = "../../../LICENSE"
    made.links[".github/skills/triage/gone.md"] = "../../../not/there.md"
    made.skill(".cursor/skills/cursor-only")
    made.skill(".opencode/skills/opencode-only")
    made.skill(".windsurf/skills/review-pr", head="name: review-pr\ndescription: An old copy.\n")
    made.links["skills/shared"] = "../shared/skills/shared"
    made.skill("shared/skills/shared")
    made.put("shared/skills/shared/references/deep.md")
    made.skill(".agents/skills/linked-file")
    made.links[".agents/skills/linked-file/docs"] = "../../../docs"
    made.put("docs/guide.md")
    made.put("docs/more/deep.md")
    made.put("LICENSE")
    made.put("src/main.py", "print('a project')\n")


def marketplace(made: Shape) -> None:
    """Made after marketplaces of plugins: sources below a root, skills at declared places."""
    for plugin, skills in {
        "frontend": ("design-review", "a11y"),
        "backend": ("api-design", "sql-review"),
    }.items():
        for name in skills:
            made.skill(f"plugins/{plugin}/skills/{name}")
            made.put(f"plugins/{plugin}/skills/{name}/references/more.md")
        made.json(f"plugins/{plugin}/.claude-plugin/plugin.json", {"name": plugin})
    made.skill("plugins/deep/packs/eu/gdpr/gdpr-check")
    made.skill("plugins/deep/packs/us/hipaa-check")
    # Both are called `a11y`; one of a name can be installed.
    made.skill("plugins/deep/skills/a11y", head="name: a11y\ndescription: Another one.\n")
    made.skill("plugins/unlisted/skills/unlisted")
    made.skill("extra/one-skill")
    made.json(
        ".claude-plugin/marketplace.json",
        {
            "name": "acme",
            "owner": {"name": "Acme"},
            "metadata": {"pluginRoot": "./plugins"},
            "plugins": [
                {"name": "frontend", "source": "./frontend"},
                {"name": "backend", "source": "./backend", "skills": ["./skills/api-design"]},
                {
                    "name": "deep",
                    "source": "./deep",
                    "skills": ["./packs/eu/gdpr/gdpr-check", "./packs/us/hipaa-check"],
                },
                {"name": "far", "source": {"source": "github", "repo": "acme/far"}},
                {"name": "out", "source": "../../outside"},
            ],
        },
    )


def monorepo(made: Shape) -> None:
    """Made after a monorepo with deep skills and the names that people give."""
    made.skill("packages/web/skills/ui-kit")
    made.skill("packages/api/docs/agents/skills/rest-style")
    made.skill("skills/team/frontend/deep-one")
    made.skill("skills/PDF-Tools", "pdf-tools")
    made.skill("skills/Upper Case Folder", "spaced-folder")
    made.skill("skills/under_score", "under_score")
    made.skill("skills/content", "Content Strategist")
    made.skill("skills/chinese", "中文技能")
    made.skill("skills/banner", head='name: "ckm:banner"\ndescription: Makes a banner.\n')
    made.skill("skills/dotted", "node.js")
    made.skill("skills/shouting", "SHOUTING-SKILL")
    made.skill("skills/dashes", "-two--dashes-")
    made.skill("skills/long-name", "long-" * 20 + "name")
    made.skill("skills/umlaut", "größe")
    made.skill("skills/escape", "../../escape")
    made.skill(
        "skills/long-description", head=f"name: long-description\ndescription: {'x' * 3000}\n"
    )
    made.skill("skills/colon", head="name: colon\ndescription: Use when: a colon is there.\n")
    made.skill("skills/folded", head="name: folded\ndescription: >\n  Over two\n  lines.\n")
    made.skill("skills/no-description", head="name: no-description\n")
    made.skill("skills/no-name", head="description: Without a name.\n")
    made.skill("skills/number", head="name: 2026\ndescription: A number.\n")
    made.skill(
        "skills/internal",
        head="name: internal\ndescription: Of ours.\nmetadata:\n  internal: true\n",
    )
    made.skill(
        "skills/fields",
        head="name: fields\ndescription: Fields of clients.\nallowed-tools: [Read, Grep]\n"
        "model: opus\ncontext: fork\nhooks:\n  Stop: []\nversion: 2\nargument-hint: [x]\n",
    )
    made.put("skills/crlf/SKILL.md", b"---\r\nname: crlf\r\ndescription: CRLF.\r\n---\r\nText.\r\n")
    made.put(
        "skills/bom/SKILL.md", b"\xef\xbb\xbf---\nname: bom\ndescription: A BOM.\n---\nText.\n"
    )
    made.put("skills/lower/skill.md", "---\nname: lower\ndescription: Lower case.\n---\nText.\n")
    made.put("skills/latin/SKILL.md", b"---\nname: latin\ndescription: Latin.\n---\nGr\xf6\xdfe.\n")
    made.put("skills/rule/SKILL.md", "---\nname: rule\ndescription: A rule.\n---\n\n---\n\nMore.\n")
    made.skill("skills/node_modules/packed")
    made.skill("skills/dist/built")
    made.skill("skills/tree")
    for path in (
        "a b.md", "Große Tabelle.md", "日本.md", ".env.example", "scripts/run.py",
        "node_modules/left-pad/index.js", "dist/bundle.js", ".DS_Store", "metadata.json",
        "~back", "x" * 110 + ".md", "deep/" * 12 + "end.md", "q's \"quote\".md", "nested.zip",
        "agents/openai.yaml", ".claude/settings.json", "SKILL.md.bak", "$HOME.md",
    ):  # fmt: skip
        made.put(f"skills/tree/{path}")
    made.put("skills/tree/empty.txt", "")
    made.put("skills/tree/__pycache__/x.pyc", PNG)
    made.links["skills/tree/inner-link.md"] = "a b.md"
    made.links["skills/tree/outer-link.md"] = "../../docs/shared.md"
    made.links["skills/tree/gone-link.md"] = "../nothing.md"
    for number, path in enumerate(LEFT_OUT):
        made.skill(f"skills/odd-file-{number}")
        made.put(f"skills/odd-file-{number}/{path}")
    made.links["skills/linked"] = "../packages/web/skills/ui-kit"
    made.put("docs/shared.md")
    made.skill("skills/category/outer")
    made.skill("skills/category/outer/nested")
    made.skill("tests/fixtures/broken/skills/fixture")


SHAPES: Mapping[str, Callable[[Shape], None]] = {
    "anthropics": anthropics,
    "vercel": vercel,
    "superpowers": superpowers,
    "root-and-nested": root_and_nested,
    "client-folders": client_folders,
    "marketplace": marketplace,
    "monorepo": monorepo,
}


def make_shape(place: Path, name: str) -> Path:
    made = Shape()
    SHAPES[name](made)
    return made.write(place / name)
