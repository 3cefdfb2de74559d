// The companion app: pairs this device, shows what waits, and signs what its person answers. All
// words are in the page.

import { forget, keep, kept, pairBy, say } from "/device_key.js";

const LOOK_MS = 4_000;
const GUARD_MS = 600;
const part = (id) => document.getElementById(id);
const words = (id) => part(`words-${id}`)?.content.textContent.trim() ?? "";
let here = "waiting";
let seen = "";
let timer = 0;

function show(name) {
  for (const one of document.querySelectorAll("[data-screen]")) one.hidden = one.dataset.screen !== name;
}

function note(text, isBad = false) {
  const place = part("note");
  place.textContent = text;
  place.className = text ? `notice ${isBad ? "notice-error" : "notice-done"}` : "";
}

const problem = (answer) => {
  const code = answer?.value?.error?.code ?? "";
  return words(`problem-${code}`) || words("problem");
};

/* Pairing. The code is after the #, which no server and no log gets. */

function codeOf(address) {
  const code = new URLSearchParams(address.split("#")[1] ?? "").get("code") ?? "";
  return code.replace(/[^0-9A-Za-z-]/g, "").slice(0, 32);
}

part("pair-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = part("pair-button");
  button.disabled = true;
  note("");
  try {
    const answer = await pairBy(part("code").value.trim(), part("name").value.trim());
    if (!answer.ok) return note(problem(answer), true);
    part("code").value = "";
    note(words("paired"));
    await begin();
  } catch {
    note(words("offline"), true);
  } finally {
    button.disabled = false;
  }
});

/* What there is. What a person has typed stays where the same question is shown again. */

function replaced(html) {
  const view = part("view");
  const typed = new Map();
  for (const one of view.querySelectorAll("input")) typed.set(one.id, one.value);
  const open = new Set([...view.querySelectorAll("details[open]")].map((one) => one.id));
  const focus = view.contains(document.activeElement) ? document.activeElement.id : "";
  const before = new Set([...view.querySelectorAll("form[data-approval]")].map((one) => one.id));
  // The server escapes every text of a call, and the policy of this page runs no script in it.
  view.innerHTML = html;
  for (const one of view.querySelectorAll("input")) if (typed.has(one.id)) one.value = typed.get(one.id);
  for (const one of view.querySelectorAll("details")) if (open.has(one.id)) one.open = true;
  if (focus) part(focus)?.focus();
  // A click that was meant for the card that was here before approves nothing.
  const isSame = [...view.querySelectorAll("form[data-approval]")].every((one) => before.has(one.id));
  const guarded = [...view.querySelectorAll("[data-guarded]")];
  if (!isSame || before.size !== view.querySelectorAll("form[data-approval]").length) {
    for (const one of guarded) one.disabled = true;
    setTimeout(() => guarded.forEach((one) => (one.disabled = false)), GUARD_MS);
  }
  for (const one of view.querySelectorAll("time[data-to]")) {
    const moment = new Date(one.dateTime);
    if (!Number.isNaN(moment.getTime())) one.textContent = moment.toLocaleString(document.documentElement.lang);
  }
}

async function lost() {
  const registration = await navigator.serviceWorker?.getRegistration("/companion/");
  const subscription = await registration?.pushManager?.getSubscription();
  await subscription?.unsubscribe();
  await forget();
  seen = "";
  clearTimeout(timer);
  part("view").textContent = "";
  show("pair");
}

async function look() {
  clearTimeout(timer);
  // A page that is not in view is not an open app.
  if (document.visibilityState !== "visible") return;
  try {
    const answer = await say({ do: "look", part: here, seen });
    part("offline").hidden = true;
    if (answer === null) return show("pair");
    if (answer.ok) {
      const found = answer.value;
      seen = found.tag;
      if (found.html !== null) replaced(found.html);
      part("device-name").textContent = found.name;
      part("count").textContent = found.waiting || "";
      document.title = `${found.waiting ? `(${found.waiting}) ` : ""}skillhouse`;
      if (found.was_away) note(words("back"));
      showPushes(found);
    } else if (answer.status === 401 && answer.value?.error?.code === "wrong") {
      await lost();
      return note(words("removed"), true);
    } else if (answer.value?.error?.code === "old") note(words("problem-old"), true);
  } catch {
    part("offline").hidden = false;
  }
  timer = setTimeout(look, LOOK_MS);
}

document.addEventListener("visibilitychange", look);
window.addEventListener("online", look);

for (const tab of document.querySelectorAll("[data-part]")) {
  tab.addEventListener("click", () => {
    here = tab.dataset.part;
    seen = "";
    for (const one of document.querySelectorAll("[data-part]")) {
      if (one === tab) one.setAttribute("aria-current", "page");
      else one.removeAttribute("aria-current");
    }
    look();
  });
}

/* Answers. */

part("view").addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-approval]");
  if (!form) return;
  event.preventDefault();
  const { approval, nonce, digest } = form.dataset;
  const buttons = [...form.querySelectorAll("button")];
  for (const one of buttons) one.disabled = true;
  note("");
  try {
    const answer = await say({
      do: "answer",
      approval,
      nonce,
      content_digest: digest,
      answer: event.submitter.value,
      message: form.elements.message?.value ?? "",
      typed: form.elements.typed?.value ?? "",
    });
    if (answer?.ok) note(words(answer.value.done === "denied" ? "denied" : "approved"));
    else note(problem(answer), true);
  } catch {
    note(words("offline"), true);
  }
  for (const one of buttons) one.disabled = false;
  await look();
});

part("stop").addEventListener("click", () => part("stop-sure").showModal());
part("stop-no").addEventListener("click", () => part("stop-sure").close());
part("stop-yes").addEventListener("click", async () => {
  part("stop-sure").close();
  try {
    const answer = await say({ do: "stop" });
    if (!answer?.ok) note(problem(answer), true);
  } catch {
    note(words("offline"), true);
  }
  seen = "";
  await look();
});

part("leave").addEventListener("click", () => part("leave-sure").showModal());
part("leave-no").addEventListener("click", () => part("leave-sure").close());
part("leave-yes").addEventListener("click", async () => {
  part("leave-sure").close();
  await say({ do: "leave" }).catch(() => null);
  await lost();
  note(words("left"));
});

/* Pushes, where the person switches them on. */

let pushKey = "";

function showPushes(found) {
  pushKey = found.push_key;
  const can = "PushManager" in window && Boolean(navigator.serviceWorker);
  part("push-none").hidden = can;
  part("push-on").hidden = !can || found.is_subscribed;
  part("push-off").hidden = !can || !found.is_subscribed;
}

part("push-on").addEventListener("click", async () => {
  try {
    if ((await Notification.requestPermission()) !== "granted") return note(words("no-push"), true);
    const registration = await navigator.serviceWorker.ready;
    const options = { userVisibleOnly: true, applicationServerKey: pushKey };
    const made = (await registration.pushManager.subscribe(options)).toJSON();
    const { p256dh, auth } = made.keys;
    const answer = await say({ do: "subscribe", endpoint: made.endpoint, p256dh, auth });
    if (!answer?.ok) note(problem(answer), true);
  } catch {
    note(words("no-push"), true);
  }
  await look();
});

part("push-off").addEventListener("click", async () => {
  await say({ do: "unsubscribe" }).catch(() => null);
  const registration = await navigator.serviceWorker.getRegistration("/companion/");
  await (await registration?.pushManager.getSubscription())?.unsubscribe();
  await look();
});

async function begin() {
  show("app");
  const texts = { question: words("push-question"), away: words("push-away"), lang: document.documentElement.lang };
  await keep("texts", texts);
  await look();
}

async function start() {
  // Browsers give neither to an address that is plain HTTP and not this machine.
  if (!window.isSecureContext || !crypto.subtle || !window.indexedDB) return show("insecure");
  navigator.serviceWorker?.register("/companion/worker.js", { scope: "/companion/", type: "module" }).catch(() => null);
  if (await kept("pair")) return begin();
  takeCode();
  show("pair");
}

/* Also of an address that is opened where the app is open already; the history keeps no code. */
function takeCode() {
  const code = codeOf(location.hash);
  if (!code) return;
  part("code").value = code;
  history.replaceState(null, "", location.pathname);
}

addEventListener("hashchange", takeCode);
start();
