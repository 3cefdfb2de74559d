"""Several executors of one core: each a process of its own, with code that the core sends."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.floor import tree_digest
from skillhouse.house import SkillCodeSettings, Skillhouse
from skillhouse.house.container import ContainerExecutor
from skillhouse.sandbox.code_call import CellSpec, RpcError
from skillhouse.tools import Progress
from tests.executors import SLEEPS, TOKEN, Balancer, worker
from tests.extensions.cells.lab import Core
from tests.frontends.mcp_peer import has_sandbox
from tests.harness import until
from tests.house.coded import coded_house, played, recorded, tool, write_code
from tests.tls_files import CertificateAuthority

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


@pytest.fixture(autouse=True)
def _needs_a_sandbox(need: Any) -> None:
    need(has_sandbox(), "no sandbox here")


def remote_house(base: Path, *, token: str = "", **settings: Any) -> Skillhouse:
    """Return a house with the skill `sleeps`, whose code runs at the executors of the settings."""
    write_code(base / "skills/sleeps", SLEEPS, tool("pid"), tool("waits"), tool("asks"))
    (base / "core-token").write_text(token or TOKEN)
    given = {"executor_token": f"file:{base}/core-token", "callback": "127.0.0.1:0", **settings}
    return coded_house(base, base / "skills", settings=SkillCodeSettings(enabled=True, **given))


async def many(house: Skillhouse, count: int, tool_name: str = "waits", **arguments: Any) -> Any:
    found: list[Any] = []

    async def one() -> None:
        found.append(await house.call(f"sleeps__{tool_name}", arguments))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return found


def statuses(house: Skillhouse) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for entry in recorded(house):
        found[entry.status] = found.get(entry.status, 0) + 1
    return found


def test_one_killed_behind_a_balancer_costs_its_calls_and_nothing_else(tmp_path: Path) -> None:
    with ExitStack() as kept:
        workers = [kept.enter_context(worker(tmp_path / name)) for name in ("one", "two")]
        balancer = Balancer([one.port for one in workers])
        kept.callback(balancer.close)
        house = remote_house(tmp_path / "core", executor=balancer.address)

        async def scene(house: Skillhouse) -> tuple[Any, Any, Any]:
            before = await many(house, 10, seconds=0.1)
            async with anyio.create_task_group() as tasks:
                during: list[Any] = []

                async def asked() -> None:
                    during.extend(await many(house, 8, seconds=2.0))

                tasks.start_soon(asked)
                await anyio.sleep(1.2)
                await anyio.to_thread.run_sync(workers[0].kill)
            return before, during, await many(house, 10, seconds=0.1)

        before, during, after = played(house, scene)
        assert [one.status for one in before] == ["ok"] * 10
        lost = [one for one in during if one.status != "ok"]
        assert len(lost) == 4
        assert all("may have had its effect, and is not repeated" in one.content for one in lost)
        assert [one.status for one in after] == ["ok"] * 10
        # Both were used, and both were sent the code; nothing was shared.
        assert all(one.executed() for one in workers)
        assert statuses(house) == {"ok": 24, "unknown": 4}


@pytest.mark.parametrize("form", ["one", "list", "balancer"])
def test_first_calls_at_once_wait_for_the_code(tmp_path: Path, form: str) -> None:
    names = ("one",) if form == "one" else ("one", "two")
    with ExitStack() as kept:
        workers = [kept.enter_context(worker(tmp_path / name)) for name in names]
        balancer = Balancer([one.port for one in workers])
        kept.callback(balancer.close)
        addresses = [one.address for one in workers]
        addresses = [balancer.address] if form == "balancer" else addresses
        house = remote_house(tmp_path / "core", executors={"python": tuple(addresses)})
        # Of some megabytes, so that it takes a moment to arrive.
        (tmp_path / "core/skills/sleeps/data.bin").write_bytes(os.urandom(20 << 20))
        for number in range(6):
            other = write_code(tmp_path / f"core/skills/other{number}", SLEEPS, tool("waits"))
            (other / "data.bin").write_bytes(os.urandom(8 << 20))

        async def scene(house: Skillhouse) -> list[Any]:
            found: list[Any] = []

            async def one(name: str) -> None:
                found.append(await house.call(f"{name}__waits", {"seconds": 1.0}))

            async with anyio.create_task_group() as tasks:
                for name in ["sleeps"] * 10 + [f"other{number}" for number in range(6)]:
                    tasks.start_soon(one, name)
            return found

        found = played(house, scene)
        assert [one.content for one in found] == ["waited"] * 16
        assert statuses(house) == {"ok": 16}
        # No call was begun twice.
        assert sum(len(one.executed()) for one in workers) == 16


def test_a_full_one_takes_no_call_and_the_core_tries_the_other_once(tmp_path: Path) -> None:
    with ExitStack() as kept:
        workers = [
            kept.enter_context(worker(tmp_path / name, "--calls", "2")) for name in ("one", "two")
        ]
        addresses = tuple(one.address for one in workers)
        house = remote_house(tmp_path / "core", executors={"python": addresses})

        async def scene(house: Skillhouse) -> Any:
            await many(house, 4, seconds=0.1)
            mark = str(tmp_path / "mark")
            assert mark
            return await many(house, 6, seconds=3.0)

        found = played(house, scene)
        refused = [one.content for one in found if one.status != "ok"]
        assert len(refused) == 2
        assert all("nothing was run" in text and "nothing was begun" in text for text in refused)
        begun = sum(line["outcome"] == "ok" for one in workers for line in one.executed())
        assert begun == 8


def test_reload_reaches_all_and_names_the_one_that_is_gone(tmp_path: Path) -> None:
    with ExitStack() as kept:
        workers = [kept.enter_context(worker(tmp_path / name)) for name in ("one", "two")]
        addresses = tuple(one.address for one in workers)
        house = remote_house(tmp_path / "core", executors={"python": addresses})

        def reloads() -> list[int]:
            return [sum(line["event"] == "skill.reload" for line in one.lines) for one in workers]

        async def scene(house: Skillhouse) -> str:
            await house.services.skill_code.reload()
            assert until(lambda: reloads() == [1, 1])
            workers[1].kill()
            with pytest.raises(RpcError) as caught:
                await house.services.skill_code.reload()
            return str(caught.value)

        said = played(house, scene)
        assert f"no server answers at 127.0.0.1:{workers[1].port}" in said
        assert until(lambda: reloads() == [2, 1])


def test_a_skill_goes_to_the_executor_that_its_manifest_asks_for(tmp_path: Path) -> None:
    with ExitStack() as kept:
        python, gpu = (kept.enter_context(worker(tmp_path / name)) for name in ("python", "gpu"))
        settings: dict[str, Any] = {"executors": {"python": python.address, "gpu": (gpu.address,)}}
        house = remote_house(tmp_path / "core", **settings)
        for name, asks in (("trains", "gpu"), ("measures", "quantum")):
            made = write_code(tmp_path / f"core/skills/{name}", SLEEPS, tool("waits"))
            text = (made / "pyproject.toml").read_text()
            text = text.replace("requires = {env = []}", f'requires = {{executor = "{asks}"}}')
            (made / "pyproject.toml").write_text(text)

        async def scene(house: Skillhouse) -> list[str]:
            names = ("sleeps", "trains", "measures")
            return [(await house.call(f"{name}__waits", {})).content for name in names]

        found = played(house, scene)
        assert found[:2] == ["waited", "waited"]
        assert "no executor for `quantum` is configured" in found[2]
        assert [line["tool"] for line in python.executed()] == ["sleeps:waits"]
        assert [line["tool"] for line in gpu.executed()] == ["trains:waits"]


def test_one_that_ends_lets_calls_end_and_takes_none(tmp_path: Path) -> None:
    with worker(tmp_path / "one") as first, worker(tmp_path / "two") as second:
        addresses = (first.address, second.address)
        house = remote_house(tmp_path / "core", executors={"python": addresses})

        async def scene(house: Skillhouse) -> tuple[Any, Any]:
            await many(house, 2)
            during: list[Any] = []
            async with anyio.create_task_group() as tasks:

                async def asked() -> None:
                    during.extend(await many(house, 4, seconds=2.0))

                tasks.start_soon(asked)
                await anyio.sleep(1.0)
                first.drain()
                await anyio.sleep(0.2)
                after = await many(house, 6, seconds=0.1)
            return during, after

        during, after = played(house, scene)
        assert [one.content for one in (*during, *after)] == ["waited"] * 10
        assert first.process.wait(10) == 0
        assert {line["event"] for line in first.lines} >= {"ending"}


def test_a_call_asks_the_core_that_made_it(tmp_path: Path) -> None:
    words = ("--core", "http://127.0.0.1:9/rpc", "--core", "http://*/rpc")
    with worker(tmp_path / "one", *words) as one:
        for name in ("a", "b"):
            house = remote_house(
                tmp_path / name,
                executor=one.address,
                callback_url="http://127.0.0.1:1/rpc",
            )
            (tmp_path / name / "project/notes.txt").write_text(f"notes of {name}")
            found = played(house, lambda house: house.call("sleeps__asks", {}))
            assert (found.status, found.content) == ("ok", f"notes of {name}")


def test_progress_and_a_cancelled_call_are_as_with_an_executor_here(tmp_path: Path) -> None:
    source = """
import time

def works(params, context):
    context.log("began")
    for step in range(1, params["steps"] + 1):
        context.progress(step / params["steps"], f"step {step}")
        time.sleep(params["seconds"])
    return "worked"

tools = {"works": works}
"""
    with worker(tmp_path / "one", "--core", "http://127.0.0.1:9/rpc") as one:
        heard: dict[str, list[Progress]] = {}
        (tmp_path / "core-token").write_text(TOKEN)
        elsewhere: dict[str, Any] = {
            "executor": one.address,
            "executor_token": f"file:{tmp_path}/core-token",
        }
        no_settings: dict[str, Any] = {}
        for place, given in (("here", no_settings), ("there", elsewhere)):
            base = tmp_path / place
            write_code(base / "skills/reports", source, tool("works"))
            settings = SkillCodeSettings(enabled=True, **given)
            house = coded_house(base, base / "skills", settings=settings)

            async def scene(house: Skillhouse) -> list[Progress]:
                found: list[Progress] = []

                async def listen(progress: Progress) -> None:
                    found.append(progress)

                slow = {"steps": 4, "seconds": 0.4}
                result = await house.call("reports__works", slow, listener=listen)
                assert (result.status, result.content) == ("ok", "worked")
                # Thousands are as few: the newest, and the last.
                many_steps = {"steps": 5_000, "seconds": 0.0}
                before = len(found)
                await house.call("reports__works", many_steps, listener=listen)
                assert len(found) - before < 50
                assert found[-1].message == "step 5000"
                del found[before:]
                with anyio.move_on_after(1.5):
                    await house.call("reports__works", {"steps": 100, "seconds": 0.5})
                return found

            heard[place] = played(house, scene)
        assert [one.message for one in heard["there"]] == [f"step {n}" for n in (1, 2, 3, 4)]
        assert heard["there"] == heard["here"]
        # The core's end of the connection was closed, and the call with it.
        assert until(lambda: [line["outcome"] for line in one.executed()][-1:] == ["cancelled"])


def test_a_token_is_changed_without_a_restart_of_either_side(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"old {TOKEN}\n")
    with worker(tmp_path / "one", token=("--tokens", str(tokens))) as one:
        house = remote_house(tmp_path / "core", executor=one.address)
        newer = "n" * 40

        async def scene(house: Skillhouse) -> list[tuple[str, str]]:
            found: list[tuple[str, str]] = []
            for at_executor, at_core in (
                ("", ""),
                (f"old {TOKEN}\nnew {newer}\n", ""),
                ("", newer),
                (f"new {newer}\n", ""),
                ("# none\n", ""),
            ):
                if at_executor:
                    tokens.write_text(at_executor)
                if at_core:
                    (tmp_path / "core/core-token").write_text(at_core)
                result = await house.call("sleeps__waits", {"seconds": 0})
                found.append((result.status, result.content))
            return found

        found = played(house, scene)
        assert [status for status, _ in found] == ["ok", "ok", "ok", "ok", "error"]
        assert "does not take our token" in found[-1][1]
        assert newer not in str(one.lines)


def test_both_sides_show_certificates_that_are_renewed_on_disk(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "tls", "ca")
    certificate, key = authority.sign("executor")
    core_certificate, core_key = authority.sign("core")
    words: tuple[str, ...] = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    words += ("--tls-ca", str(authority.ca), "--core", "https://*/rpc", "--probe-port", "0")
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(authority.ca.read_bytes())
    with worker(tmp_path / "one", *words) as one:
        assert one.address.startswith("https://")
        ours = {
            "executor": one.address,
            "executor_ca": str(trusted),
            "callback_url": "http://127.0.0.1:1/rpc",
        }
        shown = {"executor_certificate": str(core_certificate), "executor_key": str(core_key)}
        house = remote_house(tmp_path / "stranger", **ours)
        found = played(house, lambda house: house.call("sleeps__waits", {}))
        assert "it may want a certificate of its own" in found.content
        assert "nothing was run" in found.content

        house = remote_house(
            tmp_path / "core", **ours | shown | {"callback_url": "https://127.0.0.1:1/rpc"}
        )
        (tmp_path / "core/project/notes.txt").write_text("over TLS")

        async def scene(house: Skillhouse) -> list[str]:
            contents = [(await house.call("sleeps__asks", {})).content]
            # The executor's files come from another authority; a key that does not fit is left.
            other = CertificateAuthority(tmp_path / "tls-2", "ca")
            renewed, renewed_key = other.sign("executor")
            key.write_bytes(renewed_key.read_bytes())
            contents.append((await house.call("sleeps__asks", {})).content)
            certificate.write_bytes(renewed.read_bytes())
            contents.append((await house.call("sleeps__asks", {})).content)
            trusted.write_bytes(authority.ca.read_bytes() + other.ca.read_bytes())
            authority.ca.write_bytes(trusted.read_bytes())
            contents.append((await house.call("sleeps__waits", {})).content)
            return contents

        found_texts = played(house, scene)
        assert found_texts[:2] == ["over TLS"] * 2
        assert "nothing was run: no server answers" in found_texts[2]
        assert "unable to get local issuer certificate" in found_texts[2]
        assert found_texts[3] == "waited"
        said = [line for line in one.lines if line["event"] == "warning"]
        assert "the new files for TLS are not used" in str(said)
        url = f"http://127.0.0.1:{one.first['probes']}"
        assert (probe(f"{url}/healthz"), probe(f"{url}/readyz")) == ("200 ok", "200 ready")


def test_packages_are_sent_with_the_code_and_kept(tmp_path: Path) -> None:
    source = (
        "import lib\n\ndef tool(params, context):\n    return lib.A\n\ntools = {'tool': tool}\n"
    )
    skill = write_code(tmp_path / "one", source, tool())
    packages = tmp_path / "store" / ("0" * 64) / "packages"
    (packages / "lib").mkdir(parents=True)
    (packages / "lib/__init__.py").write_text("A = 'of the packages'\n")
    spec = CellSpec(
        skill="one",
        digest=tree_digest(skill),
        directory=skill,
        language="python",
        entry="main.py",
        dependencies=packages,
    )

    async def scene(address: str) -> list[Any]:
        settings = SkillCodeSettings(
            enabled=True, executor=address, executor_token=f"file:{tmp_path}/e/token"
        )
        executor = ContainerExecutor(settings, {})
        try:
            await executor.check(spec, "tool")
            names = await executor.tool_names(spec)
            found = [
                (await executor.execute(spec, "tool", {}, meta={}, host=Core())).value
                for _ in range(2)
            ]
            health = await executor.health()
            return [names, *found, [one["level"] for one in health.values()]]
        finally:
            await executor.close()

    with worker(tmp_path / "e") as one:
        names, *found, levels = anyio.run(scene, one.address)
        refused = [line for line in one.lines if line["outcome"] == "refused"]
    assert names == ("tool",)
    assert found == [{"success": True, "data": "of the packages"}] * 2
    assert len(levels) == 1
    # They were wanted once, and came together.
    assert len(refused) == 1


def probe(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return f"{answer.status} {answer.read().decode().strip()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode().strip()}"
