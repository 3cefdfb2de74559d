// COINGECKO_URL may name another server with the same API, such as a test's.
const DEFAULT_URL = "https://api.coingecko.com";

export const tools = {
  get_price: async ({ coin, currency = "usd" }, context) => {
    const base = context.env.COINGECKO_URL || DEFAULT_URL;
    const query = `ids=${encodeURIComponent(coin)}&vs_currencies=${encodeURIComponent(currency)}`;
    const res = await context.fetch(`${base}/api/v3/simple/price?${query}`);
    const data = await res.json();

    // Not `data[coin]` alone: "constructor" is a key of every object.
    if (!Object.hasOwn(data, coin)) {
      return { success: false, error: `Coin not found: ${coin}` };
    }

    return {
      success: true,
      data: {
        coin,
        currency,
        price: data[coin][currency]
      }
    };
  }
};
