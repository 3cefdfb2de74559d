"""The skills of examples/: read, and run on a fake transport without a sandbox."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skillhouse.floor import structs
from skillhouse.skill import find_manifests, parse, read_manifest, validate
from tests.harness import ran

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
JAVASCRIPT = EXAMPLES / "workspace/skills"
PYTHON = EXAMPLES / "python/skills"
NODE = shutil.which("node")

BOTH = [
    pytest.param("javascript", marks=pytest.mark.skipif(NODE is None, reason="no node here")),
    "python",
]

HARNESS = """
const { entry, tool, params, env, answers } = JSON.parse(process.argv[2]);
const asked = [];
const context = {
  env,
  meta: {},
  fetch: async (url, options = {}) => {
    asked.push({ url, ...options });
    const body = answers.shift();
    return { status: 200, ok: true, headers: {}, body, text: async () => body,
             json: async () => JSON.parse(body) };
  },
  sign: async (request) => { asked.push(request); return { signature: "0x00" }; },
};
const { tools } = await import(entry);
let result;
try { result = await tools[tool](params, context); } catch (error) { result = String(error); }
console.log(JSON.stringify({ result, asked }));
"""

PRICE = {
    "name": "get_price",
    "description": "Get current price of a cryptocurrency",
    "parameters": {
        "type": "object",
        "properties": {
            "coin": {"type": "string", "description": "Coin ID (e.g., bitcoin, ethereum)"},
            "currency": {"type": "string", "default": "usd"},
        },
        "required": ["coin"],
    },
    "security": {"level": "read"},
}
BALANCE = {
    "name": "get_balance",
    "description": "Get native token balance",
    "parameters": {
        "type": "object",
        "properties": {
            "address": {"type": "string"},
            "chain": {"type": "string", "enum": ["ethereum", "polygon", "arbitrum"]},
        },
        "required": ["address", "chain"],
    },
    "security": {"level": "read"},
}
"""Section 9 of the published design."""


def called(
    language: str,
    skill: str,
    tool: str,
    params: Mapping[str, Any],
    *,
    env: Mapping[str, str] | None = None,
    answers: tuple[str, ...] = (),
    tmp_path: Path,
) -> tuple[Any, list[Any]]:
    """Return what a tool gave and what it asked of its context."""
    if language == "javascript":
        harness = tmp_path / "harness.mjs"
        harness.write_text(HARNESS, encoding="utf-8")
        told = {"entry": (JAVASCRIPT / skill / "index.js").as_uri(), "tool": tool,
                "params": params, "env": env or {}, "answers": answers}  # fmt: skip
        command = [NODE or "node", "--no-warnings", str(harness), json.dumps(told)]
        done = ran(command, check=True, timeout=60)
        found = json.loads(done.stdout)
        return found["result"], found["asked"]
    asked: list[Any] = []
    left = list(answers)

    async def fetch(url: str, options: Mapping[str, Any] | None = None) -> Any:
        asked.append({"url": url, **(options or {})})
        body = left.pop(0)
        return SimpleNamespace(status=200, body=body, json=lambda: json.loads(body))

    spec = importlib.util.spec_from_file_location("example", PYTHON / skill / "main.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    context = SimpleNamespace(env=dict(env or {}), fetch=fetch)
    return asyncio.run(module.tools[tool](params, context)), asked


@pytest.mark.req("S002-118")
def test_each_example_is_read_without_a_finding() -> None:
    found = {
        result.directory: result for root in (JAVASCRIPT, PYTHON) for result in find_manifests(root)
    }
    assert [result.diagnostics for result in found.values()] == [()] * 5
    tools = {
        f"{directory.parent.parent.name}/{result.manifest.name}": [
            (tool.name, tool.level) for tool in result.manifest.tools
        ]
        for directory, result in found.items()
        if result.manifest is not None
    }
    assert tools == {
        "workspace/crypto-balance": [("get_balance", "read")],
        "workspace/crypto-price": [("get_price", "read")],
        "workspace/dex-swap": [("quote", "read"), ("swap", "sign")],
        "python/crypto-balance": [("get_balance", "read")],
        "python/crypto-price": [("get_price", "read")],
    }


def test_the_manifests_are_the_published_ones_with_one_variable_more() -> None:
    for skill, tool, env in (
        ("crypto-price", PRICE, []),
        ("crypto-balance", BALANCE, ["ALCHEMY_API_KEY"]),
    ):
        package = json.loads((JAVASCRIPT / skill / "package.json").read_text(encoding="utf-8"))
        assert package["owliabot"]["tools"] == [tool]
        assert package["owliabot"]["requires"]["env"][:-1] == env
        ours = read_manifest(JAVASCRIPT / skill).manifest
        python = read_manifest(PYTHON / skill).manifest
        assert ours is not None
        # What the published ones cannot say: which Python they need.
        assert python == structs.replace(
            ours, language="python", entry="main.py", requires_python=">=3.11"
        )


@pytest.mark.req("S002-115")
@pytest.mark.parametrize("language", BOTH)
def test_crypto_price(language: str, tmp_path: Path) -> None:
    prices = '{"bitcoin": {"usd": 65000.5, "eur": 60000}}'
    result, asked = called(
        language, "crypto-price", "get_price", {"coin": "bitcoin"}, answers=(prices,),
        tmp_path=tmp_path,
    )  # fmt: skip
    assert result == {
        "success": True,
        "data": {"coin": "bitcoin", "currency": "usd", "price": 65000.5},
    }
    root = "https://api.coingecko.com/api/v3/simple/price"
    assert asked == [{"url": f"{root}?ids=bitcoin&vs_currencies=usd"}]
    for coin in ("dogecoinn", "constructor"):
        result, asked = called(
            language, "crypto-price", "get_price", {"coin": coin, "currency": "eur"},
            env={"COINGECKO_URL": "http://127.0.0.1:1"}, answers=("{}",), tmp_path=tmp_path,
        )  # fmt: skip
        assert result == {"success": False, "error": f"Coin not found: {coin}"}
        path = f"api/v3/simple/price?ids={coin}&vs_currencies=eur"
        assert asked == [{"url": f"http://127.0.0.1:1/{path}"}]


@pytest.mark.req("S002-116", "S002-117")
@pytest.mark.parametrize("language", BOTH)
@pytest.mark.parametrize(
    ("wei", "chain", "balance", "symbol"),
    [
        (1_500_000_000_000_000_000, "ethereum", "1.500000", "ETH"),
        (0, "arbitrum", "0.000000", "ETH"),
        (499_999_999_999, "polygon", "0.000000", "MATIC"),
        (500_000_000_000, "polygon", "0.000001", "MATIC"),
        (int("123456789" * 35) * 10**18 + 1, "ethereum", "123456789" * 35 + ".000000", "ETH"),
        (2**256 - 1, "ethereum", f"{(2**256 - 1) // 10**18}.584008", "ETH"),
    ],
)
def test_crypto_balance(
    language: str, wei: int, chain: str, balance: str, symbol: str, tmp_path: Path
) -> None:
    address = "0x" + "ab" * 20
    result, asked = called(
        language, "crypto-balance", "get_balance", {"address": address, "chain": chain},
        env={"ALCHEMY_API_KEY": "key"},
        answers=(json.dumps({"jsonrpc": "2.0", "id": 1, "result": hex(wei)}),), tmp_path=tmp_path,
    )  # fmt: skip
    assert result == {
        "success": True,
        "data": {"address": address, "chain": chain, "balance": balance, "symbol": symbol},
    }
    hosts = {"ethereum": "eth-mainnet", "polygon": "polygon-mainnet", "arbitrum": "arb-mainnet"}
    (request,) = asked
    assert request["url"] == f"https://{hosts[chain]}.g.alchemy.com/v2/key"
    assert (request["method"], request["headers"]) == ("POST", {"Content-Type": "application/json"})
    assert json.loads(request["body"]) == {
        "jsonrpc": "2.0",
        "method": "eth_getBalance",
        "params": [address, "latest"],
        "id": 1,
    }


@pytest.mark.parametrize("language", BOTH)
def test_crypto_balance_says_what_is_missing(language: str, tmp_path: Path) -> None:
    params = {"address": "0x0", "chain": "polygon"}
    result, asked = called(language, "crypto-balance", "get_balance", params, tmp_path=tmp_path)
    assert (result, asked) == ({"success": False, "error": "ALCHEMY_API_KEY is not set"}, [])
    env = {"ALCHEMY_API_KEY": "key", "ALCHEMY_URL": "http://127.0.0.1:1"}
    answer = '{"error": {"code": -32602, "message": "invalid address"}}'
    result, asked = called(
        language, "crypto-balance", "get_balance", params, env=env, answers=(answer,),
        tmp_path=tmp_path,
    )  # fmt: skip
    assert result == {"success": False, "error": "invalid address"}
    assert asked[0]["url"] == "http://127.0.0.1:1/polygon/v2/key"


GIVE, GET, ACCOUNT = ("0x" + digit * 40 for digit in "abc")
AMOUNTS = "0x" + "".join(f"{word:064x}" for word in (32, 2, 10**18, 2_000 * 10**6))
"""What the router answers: an ABI-encoded uint256[] of what is given and what is got."""


def words(calldata: str) -> list[int]:
    return [int(calldata[at : at + 64], 16) for at in range(10, len(calldata), 64)]


@pytest.mark.req("S002-31", "S002-118")
@pytest.mark.skipif(NODE is None, reason="no node here")
def test_dex_swap_asks_for_a_signature_of_what_its_own_module_encodes(tmp_path: Path) -> None:
    params = {
        "from": GIVE, "to": GET, "amount": str(10**18), "account": ACCOUNT, "key": "main",
        "nonce": 7, "deadline": 1_800_000_000, "slippage_bps": 100,
    }  # fmt: skip
    result, asked = called(
        "javascript", "dex-swap", "swap", params, env={"ALCHEMY_API_KEY": "key"},
        answers=(f'{{"result": "{AMOUNTS}"}}', '{"result": "0x3b9aca00"}'), tmp_path=tmp_path,
    )  # fmt: skip
    assert result == {
        "success": True,
        "data": {"least": str(1_980 * 10**6), "signed": {"signature": "0x00"}},
    }
    call = json.loads(asked[0]["body"])["params"][0]["data"]
    assert call[:10] == "0xd06ca61f"
    assert words(call) == [10**18, 64, 2, int(GIVE, 16), int(GET, 16)]
    transaction = asked[2]["transaction"]
    assert transaction["data"][:10] == "0x38ed1739"
    assert words(transaction["data"]) == [
        *(10**18, 1_980 * 10**6, 160, int(ACCOUNT, 16), 1_800_000_000, 2),
        *(int(GIVE, 16), int(GET, 16)),
    ]
    assert (transaction["gas_price"], transaction["nonce"]) == ("1000000000", 7)


def compared(*arguments: object) -> tuple[int, str]:
    script = JAVASCRIPT / "file-diff/scripts/compare.py"
    command = [sys.executable, "-I", str(script), *map(str, arguments)]
    done = ran(command, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_file_diff_is_a_valid_skill() -> None:
    file = JAVASCRIPT / "file-diff/SKILL.md"
    assert validate(file.parent) == ()
    body = parse(file.read_bytes(), directory="file-diff").body
    assert all(
        (file.parent / name).is_file() for name in ("scripts/compare.py", "references/format.md")
    )
    assert "scripts/compare.py" in body
    assert "references/format.md" in body


def test_file_diff_compares(tmp_path: Path) -> None:
    old, new, blanks = (tmp_path / name for name in ("old", "new", "blanks"))
    old.write_text("one\ntwo\n")
    new.write_text("one\n2")
    blanks.write_text("one \ntwo\n")
    assert compared(old, old) == (0, "equal\n")
    assert compared(old, new) == (
        1,
        f"--- {old}\n+++ {new}\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n\\ No newline at end of file\n",
    )
    assert compared("--summary", old, new) == (1, "1 added, 1 removed\n")
    assert compared("--ignore-blanks", old, blanks) == (0, "equal\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for missing in ("none", "binary"):
        code, said = compared(old, tmp_path / missing)
        assert (code, str(tmp_path / missing) in said) == (2, True)
