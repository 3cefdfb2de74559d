import { ROUTER, amountsOf, leastOf, quoteData, swapData } from "./lib/uniswap.js";

const CHAIN_ID = 1;
const GAS_LIMIT = 250_000;

const rpc = async (context, method, params) => {
  const { ALCHEMY_API_KEY: key, ALCHEMY_URL: base } = context.env;
  if (!key) throw new Error("ALCHEMY_API_KEY is not set");
  const root = base ? `${base}/ethereum` : "https://eth-mainnet.g.alchemy.com";
  const res = await context.fetch(`${root}/v2/${key}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", method, params, id: 1 })
  });
  const data = await res.json();
  if (data.error) throw new Error(data.error.message);
  return data.result;
};

const quoted = async ({ from, to, amount }, context) => {
  const call = { to: ROUTER, data: quoteData(amount, [from, to]) };
  return amountsOf(await rpc(context, "eth_call", [call, "latest"])).at(-1);
};

export const tools = {
  quote: async (params, context) => {
    const amount = await quoted(params, context);
    return { success: true, data: { from: params.from, to: params.to, amount: amount.toString() } };
  },

  swap: async (params, context) => {
    const { from, to, amount, account, key, nonce, deadline, slippage_bps = 50 } = params;
    const least = leastOf(await quoted(params, context), slippage_bps);
    const gasPrice = BigInt(await rpc(context, "eth_gasPrice", []));
    const signed = await context.sign({
      type: "transaction",
      key,
      transaction: {
        chain_id: CHAIN_ID,
        nonce,
        to: ROUTER,
        value: 0,
        data: swapData(amount, least, [from, to], account, deadline),
        gas_limit: GAS_LIMIT,
        gas_price: gasPrice.toString()
      }
    });
    return { success: true, data: { least: least.toString(), signed } };
  }
};
