// The key of this device, and messages signed with it. The browser keeps the private half and gives
// it to no script; a service worker has the same one.

const STORE = "device";

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("skillhouse-companion", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function inStore(mode, act) {
  const database = await opened();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const request = act(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

/* What is kept: `pair` (a key pair, the id and the name of the device) and `texts` (the words of
notices, in the language of the person). */

export const kept = (name) => inStore("readonly", (store) => store.get(name));
export const keep = (name, value) => inStore("readwrite", (store) => store.put(value, name));
export const forget = () => inStore("readwrite", (store) => store.clear());

function base64(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

async function signature(key, text) {
  const bytes = new TextEncoder().encode(text);
  return base64(await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, key, bytes));
}

async function posted(path, body, headers) {
  // A service worker serves the shell alone; credentials are those of a page's owner.
  const answer = await fetch(path, {
    method: "POST",
    credentials: "omit",
    cache: "no-store",
    headers: { "content-type": "application/json", ...headers },
    body,
  });
  const value = await answer.json().catch(() => null);
  return { ok: answer.ok, status: answer.status, value };
}

/* Send a message of the paired device; null where none is paired. */
export async function say(what) {
  const pair = await kept("pair");
  if (!pair) return null;
  const body = JSON.stringify({ ...what, device: pair.id });
  const id = crypto.randomUUID();
  const time = String(Math.floor(Date.now() / 1000));
  const signed = await signature(pair.keys.privateKey, `${id}.${time}.${body}`);
  return posted("/companion/message", body, {
    "webhook-id": id,
    "webhook-timestamp": time,
    "webhook-signature": `p256,${signed}`,
  });
}

/* Make a key that cannot be exported and pair this device by a code. */
export async function pairBy(code, name) {
  const keys = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign"]);
  const point = base64(await crypto.subtle.exportKey("raw", keys.publicKey));
  const body = JSON.stringify({ code, name, public_key: point });
  const answer = await posted("/companion/pair", body, {
    "webhook-signature": await signature(keys.privateKey, body),
  });
  if (answer.ok) await keep("pair", { keys, id: answer.value.device, name: answer.value.name });
  return answer;
}
