"""The container form: what deploy/ sets is what the design of executable skills publishes."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from skillhouse.skill.yaml_text import read_mapping
from tests.engine import composers
from tests.harness import ran

DEPLOY = Path(__file__).parents[1] / "deploy"
COMPOSE = read_mapping((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
REPLICAS = read_mapping((DEPLOY / "compose-replicas.yaml").read_text(encoding="utf-8"))
CORES = ("core-a", "core-b")
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")

PUBLISHED: dict[str, Any] = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "read_only": "true",
    "tmpfs": ["/tmp"],
    "mem_limit": "512m",
    "cpus": "1",
    "networks": ["internal"],
}
"""Section 5.1 of the design, as texts; its volume is relative to the place of the file."""

LOOSENING = frozenset(
    "cap_add cgroup_parent device_cgroup_rules devices extends external_links group_add ipc links "
    "network_mode pid ports privileged sysctls userns_mode uts env_file environment".split()
)
"""Settings that would let the executor reach more, or hand it what the core knows."""


def stages() -> dict[str, list[str]]:
    """Return the instructions of each stage of the Dockerfile, its base image first."""
    joined = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    found: dict[str, list[str]] = {}
    for line in lines:
        if start := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            found[start[2]] = [start[1]]
        elif found:
            found[list(found)[-1]].append(line)
    return found


@pytest.mark.req(
    "S002-84", "S002-85", "S002-86", "S002-87", "S002-88", "S002-89", "S002-90", "S002-91"
)
def test_the_executor_has_the_published_hardening() -> None:
    executor = COMPOSE["services"]["skill-executor"]
    assert {key: executor[key] for key in PUBLISHED} == PUBLISHED
    # Beside the published volume only what the core installs for skills, likewise read-only.
    assert executor["volumes"] == ["../workspace/skills:/skills:ro", "packages:/packages:ro"]
    options = {"com.docker.network.bridge.inhibit_ipv4": "true"}
    assert COMPOSE["networks"]["internal"] == {"internal": "true", "driver_opts": options}


@pytest.mark.req("S002-12", "S002-85")
def test_nothing_lets_the_executor_out_or_hands_it_secrets() -> None:
    executor = COMPOSE["services"]["skill-executor"]
    assert set(executor) & LOOSENING == set()
    # The word by which core and executor know each other is all that is handed over, as a file.
    assert executor["secrets"] == ["rpc-token"]
    assert COMPOSE["secrets"] == {"rpc-token": {"file": "./secrets/rpc-token"}}
    words = "\n".join(str(service) for service in COMPOSE["services"].values())
    assert not re.search(r"token['\"]?[:=] *['\"]?[0-9a-f]{16}", words, re.IGNORECASE)


@pytest.mark.req("S002-92")
def test_the_core_is_on_both_networks() -> None:
    core = COMPOSE["services"]["core"]
    assert core["networks"] == ["internal", "external"]
    assert set(COMPOSE["networks"]) == {"internal", "external"}
    assert COMPOSE["networks"]["external"] in ("", None, {})


def test_only_this_machine_reaches_the_page_and_nobody_the_rest() -> None:
    ports = {name: service.get("ports", []) for name, service in COMPOSE["services"].items()}
    assert ports == {"core": ["127.0.0.1:8600:8600"], "skill-executor": []}


def test_core_and_executor_agree_where_they_are() -> None:
    settings = tomllib.loads((DEPLOY / "core.toml").read_text(encoding="utf-8"))["skill_code"]
    command = COMPOSE["services"]["skill-executor"]["command"]
    told = {command[n]: command[n + 1] for n in range(1, len(command) - 1)}
    assert settings["executor"] == f"http://skill-executor:{told['--port']}/rpc"
    assert told["--core"] == f"http://core:{settings['callback'].rpartition(':')[2]}/rpc"
    assert settings["executor_token"] == f"file:{told['--token-file']}"
    assert told["--token-file"] == "/run/secrets/rpc-token"


def test_the_images_run_as_nobody_and_install_only_what_is_pinned() -> None:
    found = stages()
    for service in COMPOSE["services"].values():
        lines = found[service["build"]["target"]]
        users = [line for line in lines if line.startswith("USER ")]
        assert users[-1] == "USER 65534:65534"
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    installs = [
        text for line in found["build"] for text in line.split("&&") if "pip install" in text
    ]
    assert len(installs) == 3
    assert all(
        "--require-hashes" in text and "--only-binary :all:" in text for text in installs[:2]
    )
    assert "requirements/uv.txt" in installs[1]
    assert "--no-deps" in installs[2]
    # An installer that reaches the network is in the core alone.
    assert "COPY --from=build /opt/uv/bin/uv /usr/local/bin/uv" in found["core"]
    assert not any("uv" in line or "npm" in line for line in found["skill-executor"])
    images = {lines[0] for lines in found.values()} - set(found)
    assert images == {"$BASE"}
    assert re.search(r"^ARG BASE=[a-z]+:[\w.-]*\d[\w.-]*$", DOCKERFILE, re.MULTILINE)
    assert not re.search(r"^ADD |curl|wget|:latest", DOCKERFILE, re.MULTILINE)


def test_what_the_dockerfile_copies_is_there() -> None:
    sources = [
        word
        for lines in stages().values()
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert sources
    assert [name for name in sources if not (DEPLOY.parent / name).exists()] == []
    ignored = (DEPLOY.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    first = next(line for line in ignored if not line.startswith("#"))
    sent = {line[1:] for line in ignored if line.startswith("!")}
    assert (first, sent) == ("*", {name.partition("/")[0] for name in sources})


def test_the_bot_is_added_to_the_core_with_secrets_of_its_own() -> None:
    added = read_mapping((DEPLOY / "bot.yaml").read_text(encoding="utf-8"))
    assert set(added["services"]) == {"core"}
    core = added["services"]["core"]
    assert set(core) == {"secrets", "healthcheck"}
    assert core["healthcheck"]["test"] == ["CMD", "skillhouse", "bot", "--check"]
    settings = bot_settings()["bot"]
    assert settings["telegram"]["token"] == "file:/run/secrets/bot-token"
    assert settings["key"] == "file:/run/secrets/model-key"
    assert core["secrets"] == list(added["secrets"]) == ["bot-token", "model-key"]


def bot_settings() -> dict[str, Any]:
    """Return deploy/core.toml with the lines about the bot uncommented."""
    head, mark, tail = (DEPLOY / "core.toml").read_text(encoding="utf-8").partition("# [bot]\n")
    assert mark
    return tomllib.loads(head + mark[2:] + tail.replace("# ", ""))


def test_both_generations_of_compose_take_the_file() -> None:
    # 1.29 refuses the key `name`, and has the project's name from .env, as Compose 2 does.
    assert set(COMPOSE) == {"services", "networks", "volumes", "secrets"}
    assert (DEPLOY / ".env").read_text(encoding="utf-8") == "COMPOSE_PROJECT_NAME=skillhouse\n"


@pytest.mark.slow
def test_the_installed_compose_reads_the_file(tmp_path: Path) -> None:
    commands = composers()
    if not commands:
        pytest.skip("neither Compose 2 nor docker-compose is installed")
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("secrets"))
    (tmp_path / "deploy/secrets").mkdir()
    for name in ("rpc-token", "bot-token", "model-key", "state-url", "state-password"):
        (tmp_path / "deploy/secrets" / name).write_text("f" * 64)
    for command in commands.values():
        for more in ([], [f"--file={tmp_path}/deploy/bot.yaml"]):
            argv = [*command, f"--file={tmp_path}/deploy/compose.yaml", *more, "config"]
            done = ran(argv)
            assert (done.returncode, "read_only: true" in done.stdout) == (0, True), done.stderr
            assert ("bot-token" in done.stdout) == bool(more)
        argv = [*command, f"--file={tmp_path}/deploy/compose-replicas.yaml", "config"]
        done = ran(argv)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("cap_drop:") == len(REPLICAS["services"])
        assert "ffff" not in done.stdout


def test_executors_of_replicas_have_the_published_hardening_too() -> None:
    one = COMPOSE["services"]["skill-executor"]
    several = REPLICAS["services"]["skill-executor"]
    assert several["scale"] == "3"
    own = {"scale", "stop_grace_period", "command"}
    same = {key: value for key, value in several.items() if key not in own}
    assert same == {key: value for key, value in one.items() if key in same}
    # Code comes with calls, so that no volume is shared.
    assert set(one) - set(same) == {"command", "volumes"}
    assert "volumes" not in several
    command = several["command"]
    assert "--skills" not in command
    assert command[command.index("--boundary") + 1] == "container"
    assert REPLICAS["networks"]["internal"] == {
        "internal": "true",
        "driver_opts": {"com.docker.network.bridge.inhibit_ipv4": "true"},
    }


def test_no_executor_reaches_the_database_and_no_one_but_the_balancer_is_published() -> None:
    networks = {name: set(one["networks"]) for name, one in REPLICAS["services"].items()}
    assert networks == {
        "postgres": {"state"},
        **{name: {"front", "state", "external", "internal"} for name in CORES},
        "balancer": {"front", "published"},
        "skill-executor": {"internal"},
        "audit": {"state"},
    }
    inner = {name for name, one in REPLICAS["networks"].items() if (one or {}).get("internal")}
    assert inner == {"internal", "state", "front"}
    ports = {name: one["ports"] for name, one in REPLICAS["services"].items() if "ports" in one}
    assert ports == {"balancer": ["127.0.0.1:8600:8600"]}


def test_every_container_of_replicas_is_as_hardened_as_the_core() -> None:
    for name, one in REPLICAS["services"].items():
        found = [one[key] for key in ("cap_drop", "security_opt", "read_only")]
        assert found == [["ALL"], ["no-new-privileges:true"], "true"], name
        assert set(one) & (LOOSENING - {"ports", "environment"}) == set(), name


def test_replicas_differ_by_their_name_and_home_alone() -> None:
    first, second = (REPLICAS["services"][name] for name in CORES)
    differing = {key for key in first if first[key] != second[key]}
    assert differing == {"environment", "volumes"}
    for name, one in zip(CORES, (first, second), strict=True):
        assert one["environment"]["SKILLHOUSE_SERVER_NAME"] == name
        # The log and its key are of one server.
        assert one["volumes"][0] == f"home-{name[-1]}:/var/lib/skillhouse"
    assert [one.replace("core-b", "core-a") for one in second["volumes"][1:]] == first["volumes"][
        1:
    ]
    a, b = ((DEPLOY / f"{name}.toml").read_text(encoding="utf-8") for name in CORES)
    assert a.replace("core-a", "core-b") == b


def test_who_reads_the_logs_changes_none_and_starts_when_asked_alone() -> None:
    found = REPLICAS["services"]["audit"]
    assert found["profiles"] == ["audit"]
    assert found["volumes"][:2] == ["home-a:/logs/core-a:ro", "home-b:/logs/core-b:ro"]
    assert all(volume.endswith(":ro") for volume in found["volumes"])
    settings = tomllib.loads((DEPLOY / "audit.toml").read_text(encoding="utf-8"))
    assert settings == {"state": {"url": "file:/run/secrets/state-url"}}


def test_the_secrets_of_replicas_are_files_that_one_service_has() -> None:
    has = {name: one.get("secrets", []) for name, one in REPLICAS["services"].items()}
    assert has == {
        "postgres": ["state-password"],
        **{name: ["rpc-token", "state-url"] for name in CORES},
        "balancer": [],
        "skill-executor": ["rpc-token"],
        "audit": ["state-url"],
    }
    assert REPLICAS["secrets"] == {
        name: {"file": f"./secrets/{name}"} for name in ("rpc-token", "state-password", "state-url")
    }


def test_replicas_and_executors_agree_where_they_are() -> None:
    command = REPLICAS["services"]["skill-executor"]["command"]
    asked = {command[n + 1] for n, word in enumerate(command) if word == "--core"}
    port, token = (command[command.index(word) + 1] for word in ("--port", "--token-file"))
    for name in CORES:
        settings = tomllib.loads((DEPLOY / f"{name}.toml").read_text(encoding="utf-8"))
        code = settings["skill_code"]
        assert code["executors"] == {"python": f"http://skill-executor:{port}/rpc"}
        assert code["callback_url"] == f"http://{name}:{code['callback'].rpartition(':')[2]}/rpc"
        assert code["callback_url"] in asked
        assert code["executor_token"] == f"file:{token}"
        assert settings["state"]["url"] == "file:/run/secrets/state-url"
    assert len(asked) == len(CORES)
    balancer = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    servers = re.findall(r"^    server (\S+) (\S+)$", balancer, re.MULTILINE)
    assert servers == [(name, f"{name}:8600") for name in CORES]
