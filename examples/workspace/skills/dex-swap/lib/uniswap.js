// Calls of the Uniswap V2 router, encoded by hand (Solidity ABI): words of 32 bytes, big-endian.

export const ROUTER = "0x7a250d5630b4cf539739df2c5dacb4c659f2488d";

const GET_AMOUNTS_OUT = "d06ca61f"; // getAmountsOut(uint256,address[])
const SWAP = "38ed1739"; // swapExactTokensForTokens(uint256,uint256,address[],address,uint256)
const WORD = 64;

const uint = (value) => {
  const number = BigInt(value);
  if (number < 0n || number >= 1n << 256n) throw new RangeError(`no 256-bit number: ${value}`);
  return number.toString(16).padStart(WORD, "0");
};

const address = (text) => {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text)) throw new TypeError(`no address: ${text}`);
  return text.slice(2).toLowerCase().padStart(WORD, "0");
};

const path = (tokens) => uint(tokens.length) + tokens.map(address).join("");

export const quoteData = (amount, tokens) =>
  `0x${GET_AMOUNTS_OUT}${uint(amount)}${uint(2 * 32)}${path(tokens)}`;

export const swapData = (amount, least, tokens, to, deadline) =>
  `0x${SWAP}${uint(amount)}${uint(least)}${uint(5 * 32)}${address(to)}${uint(deadline)}${path(tokens)}`;

// Returns the numbers of an ABI-encoded uint256[].
export const amountsOf = (result) => {
  if (!/^0x([0-9a-fA-F]{64})+$/.test(result)) throw new TypeError("no list of amounts");
  const words = result.slice(2).match(/.{64}/g).map((word) => BigInt(`0x${word}`));
  const count = Number(words[1]);
  if (words[0] !== 32n || words.length !== count + 2) throw new TypeError("no list of amounts");
  return words.slice(2);
};

// The least that a swap may give: the quote less so many ten-thousandths, rounded down.
export const leastOf = (amount, slippageBps) => (amount * BigInt(10_000 - slippageBps)) / 10_000n;
