"""Query wallet balances across chains."""

import json
import re

RPC_URLS = {
    "ethereum": "https://eth-mainnet.g.alchemy.com/v2/",
    "polygon": "https://polygon-mainnet.g.alchemy.com/v2/",
    "arbitrum": "https://arb-mainnet.g.alchemy.com/v2/",
}
WEI_DIGITS = 18
SHOWN_DIGITS = 6


async def get_balance(params, context):
    """Return the native balance of an address, exact to six decimals."""
    address, chain = params["address"], params["chain"]
    key = context.env.get("ALCHEMY_API_KEY")
    if not key:
        return {"success": False, "error": "ALCHEMY_API_KEY is not set"}
    call = {"jsonrpc": "2.0", "method": "eth_getBalance", "params": [address, "latest"], "id": 1}
    response = await context.fetch(
        rpc_url(context.env, chain) + key,
        {
            "method": "POST",
            "headers": {"Content-Type": "application/json"},
            "body": json.dumps(call),
        },
    )
    data = response.json()
    balance = data.get("result")
    if not isinstance(balance, str) or not re.fullmatch("0x[0-9a-fA-F]+", balance):
        error = (data.get("error") or {}).get("message") or "The node gave no balance"
        return {"success": False, "error": error}
    return {
        "success": True,
        "data": {
            "address": address,
            "chain": chain,
            "balance": shown(int(balance, 16)),
            "symbol": "MATIC" if chain == "polygon" else "ETH",
        },
    }


def rpc_url(env, chain):
    """Return where the chain's node is; ALCHEMY_URL may name another, such as a test's."""
    base = env.get("ALCHEMY_URL")
    return f"{base}/{chain}/v2/" if base else RPC_URLS[chain]


def shown(wei):
    """Return wei as ether with six decimals, by integers only: a float would lose digits."""
    unit = 10 ** (WEI_DIGITS - SHOWN_DIGITS)
    digits = str((wei + unit // 2) // unit).zfill(SHOWN_DIGITS + 1)
    return f"{digits[:-SHOWN_DIGITS]}.{digits[-SHOWN_DIGITS:]}"


tools = {"get_balance": get_balance}
