const RPC_URLS = {
  ethereum: "https://eth-mainnet.g.alchemy.com/v2/",
  polygon: "https://polygon-mainnet.g.alchemy.com/v2/",
  arbitrum: "https://arb-mainnet.g.alchemy.com/v2/"
};

const WEI_DIGITS = 18;
const SHOWN_DIGITS = 6;

// ALCHEMY_URL may name another server, such as a test's; it gets the chain as part of the path.
const rpcUrl = (env, chain) =>
  env.ALCHEMY_URL ? `${env.ALCHEMY_URL}/${chain}/v2/` : RPC_URLS[chain];

// Returns wei as ether with six decimals. Integers only: Number() would lose digits from the 16th.
const shown = (wei) => {
  const unit = 10n ** BigInt(WEI_DIGITS - SHOWN_DIGITS);
  const rounded = (wei + unit / 2n) / unit;
  const digits = rounded.toString().padStart(SHOWN_DIGITS + 1, "0");
  return `${digits.slice(0, -SHOWN_DIGITS)}.${digits.slice(-SHOWN_DIGITS)}`;
};

export const tools = {
  get_balance: async ({ address, chain }, context) => {
    if (!context.env.ALCHEMY_API_KEY) {
      return { success: false, error: "ALCHEMY_API_KEY is not set" };
    }
    const url = rpcUrl(context.env, chain) + context.env.ALCHEMY_API_KEY;

    const res = await context.fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        jsonrpc: "2.0",
        method: "eth_getBalance",
        params: [address, "latest"],
        id: 1
      })
    });

    const data = await res.json();
    if (!/^0x[0-9a-fA-F]+$/.test(data.result)) {
      return { success: false, error: data.error?.message ?? "The node gave no balance" };
    }

    return {
      success: true,
      data: {
        address,
        chain,
        balance: shown(BigInt(data.result)),
        symbol: chain === "polygon" ? "MATIC" : "ETH"
      }
    };
  }
};
