"""Get cryptocurrency prices from CoinGecko."""

from urllib.parse import urlencode

DEFAULT_URL = "https://api.coingecko.com"
"""COINGECKO_URL may name another server with the same API, such as a test's."""


async def get_price(params, context):
    """Return the price of one coin."""
    coin = params["coin"]
    currency = params.get("currency", "usd")
    base = context.env.get("COINGECKO_URL") or DEFAULT_URL
    query = urlencode({"ids": coin, "vs_currencies": currency})
    response = await context.fetch(f"{base}/api/v3/simple/price?{query}")
    data = response.json()
    if coin not in data:
        return {"success": False, "error": f"Coin not found: {coin}"}
    price = data[coin].get(currency)
    return {"success": True, "data": {"coin": coin, "currency": currency, "price": price}}


tools = {"get_price": get_price}
