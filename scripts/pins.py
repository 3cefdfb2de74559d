"""Compiles the pins from pyproject.toml and requirements/*.in: `./x pins [--upgrade]`.

Needs only the standard library and uv, whose path `./x` gives as the first argument; further
arguments go to uv.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = (
    ("uv", ["requirements/uv.in"]),
    ("core", ["pyproject.toml", "signer/pyproject.toml", "--extra", "all", "--extra", "hsm"]),
    ("build", ["requirements/build.in", "--constraint", "requirements/core.txt"]),
    (
        "dev",
        [
            "requirements/dev.in",
            *("--constraint", "requirements/core.txt"),
            *("--constraint", "requirements/build.txt"),
            "pyproject.toml",
            *("--extra", "chat"),
            *("--extra", "pydantic-ai"),
            *("--extra", "langchain"),
            *("--extra", "openai-agents"),
            *("--extra", "openai"),
            *("--extra", "anthropic"),
            *("--extra", "agent-framework"),
        ],
    ),
    # The encoders of search by meaning, 140 MB installed: their tests have an environment of their
    # own. It agrees with the numpy of the others.
    (
        "semantic",
        [
            *("requirements/adapter.in", "pyproject.toml", "--extra", "semantic"),
            *("--constraint", "requirements/dev.txt"),
        ],
    ),
    # Adapters that have an environment of their own: two want older packages than we have, the
    # third carries a program of 240 MB. They agree with no other file.
    *(
        (f"adapter-{name}", ["requirements/adapter.in", "pyproject.toml", "--extra", name])
        for name in ("claude-agent", "google-adk", "crewai")
    ),
    # Frameworks that use our server over MCP, without an adapter.
    ("mcp-clients", ["requirements/mcp-clients.in"]),
    # What checks our signatures besides us; it is no verifier to rely on (decision 0275).
    ("model-signing", ["requirements/model-signing.in"]),
    # What compares the HTTP API with its document; it wants other packages than we have.
    ("schemathesis", ["requirements/schemathesis.in"]),
    # What makes a client from that document, as others do.
    ("openapi-client", ["requirements/openapi-client.in"]),
    # A PostgreSQL with the extension `vector`, which Debian 12 does not have.
    ("pgvector", ["requirements/pgvector.in"]),
    # The schemas of Kubernetes, 108 MB installed, by which the chart is tried.
    ("kubernetes", ["requirements/kubernetes.in"]),
)
"""Name of each file and what it is compiled from; a later one agrees with the earlier ones."""

WHEELS_ALONE = frozenset(("uv", "core", "build"))
"""What deploy/Dockerfile installs: a package without a wheel would have to be built there."""

OPTIONS = (
    "--universal",
    "--generate-hashes",
    "--no-annotate",
    # No file may name a registry: a user's own index settings decide where packages come from.
    "--no-emit-index-url",
    "--no-emit-find-links",
    # Ours come from this tree.
    *("--no-emit-package", "skillhouse"),
    "--quiet",
    *("--python-version", "3.11"),
    *("--custom-compile-command", "./x pins"),
)


def main() -> int:
    uv, *arguments = sys.argv[1:]
    for name, sources in PINS:
        output = f"requirements/{name}.txt"
        print(f"compiling {output}", file=sys.stderr)
        wheels = ("--only-binary", ":all:") if name in WHEELS_ALONE else ()
        options = (*OPTIONS, *wheels, *arguments, *sources)
        command = [uv, "pip", "compile", *options, "--output-file", output]
        # uv prints the file as well; it is of no use on a terminal.
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
