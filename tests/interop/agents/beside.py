"""What a client's own list names of a person's skills, beside what ours names of the same ones.

    ./x py -m tests.interop.agents.beside --agents FOLDER --sample FILE

Each client runs offline twice for each number of skills: with the skills in its own folder and
without us, then with them in ours and with us over MCP. A name counts where it stands in the first
request that names most, and in none that the client makes without skills. Exit code 1 where the
client's own list of up to 200 skills names one that ours does not: many more do not fit over MCP,
and the others are found by search (decisions 396 and 423).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from tests.interop.agents import scenes
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.fake_model import FakeModel
from tests.interop.agents.judging import words_of
from tests.interop.agents.offering import sampled

ROOTS = {
    "claude-code": ".claude/skills",
    "codex": ".codex/skills",
    "gemini-cli": ".gemini/skills",
    "opencode": ".config/opencode/skills",
}
"""Each client's own folder in a home."""
MANY = 200
"""Skills, all of which fit over MCP by their names."""


def named(
    actor: scenes.Actor, base: Path, skills: dict[str, str], root: str, *, with_us: bool
) -> set[str]:
    """Return which skills of a folder below a home are named in the requests of one run."""
    house = scenes.House(base)
    house.configure("")
    for name, text in skills.items():
        directory = house.home / root / name
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_text(text)
    model = FakeModel(steps=())
    installed = ("--tools", "all") if with_us else None
    scenes.act(actor, house, model, installed=installed)
    # The descriptions of a tool's parameters too.
    texts = [f"{words_of(one)}\n{json.dumps(one.body.get('tools'))}" for one in model.asked]
    # Not in a path: the place of our state is below a home.
    found = ({n for n in skills if re.search(rf"(?<![\w/.-]){n}(?![\w/-])", t)} for t in texts)
    return max(found, key=len, default=set())


def compared(actor: scenes.Actor, base: Path, sample: Path, count: int) -> tuple[set[str], ...]:
    """Return all names, those of the client's own list, and those of ours."""
    skills = dict(sampled(sample, count))
    plain = base / "plain"
    model = FakeModel(steps=())
    house = scenes.House(plain)
    house.configure("")
    scenes.act(actor, house, model, installed=None)
    usual = "\n".join(words_of(one) for one in model.asked)
    skills = {n: text for n, text in skills.items() if not re.search(rf"\b{n}\b", usual)}
    own = named(actor, base / "own", skills, ROOTS[actor.client.name], with_us=False)
    ours = named(actor, base / "ours", skills, ".config/skillhouse/skills", with_us=True)
    return set(skills), own, ours


def main() -> int:
    """Run the clients and print a table."""
    parser = argparse.ArgumentParser(description="Compare lists of skills, client by client.")
    parser.add_argument("--agents", type=Path, required=True, help="folder of their commands")
    parser.add_argument("--sample", type=Path, required=True, help="real skills: JSON lines")
    parser.add_argument("--skills", default="41,72,200", help="how many, separated by commas")
    parser.add_argument("--only", default="", help="these clients, separated by commas")
    options = parser.parse_args()
    short = 0
    print("| client | skills | its own list | ours over MCP | only in its own |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="beside-") as scratch:
        for client in CLIENTS:
            program = options.agents.resolve() / client.words[0]
            if not program.exists() or (options.only and client.name not in options.only):
                continue
            actor = scenes.Actor(client=client, program=program, version="")
            for count in map(int, options.skills.split(",")):
                base = Path(scratch, f"{client.name}-{count}")
                every, own, ours = compared(actor, base, options.sample, count)
                lost = sorted(own - ours)
                short += bool(lost) and count <= MANY
                print(
                    f"| {client.title} | {len(every)} | {len(own)} | {len(ours)} | {len(lost)} |",
                    flush=True,
                )
                if lost:
                    print(json.dumps(lost), file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
