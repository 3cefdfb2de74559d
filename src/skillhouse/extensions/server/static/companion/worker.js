// The service worker of the companion app. It keeps the shell, which is the same for everyone, so
// that the app says that it is offline; it keeps no question, answer or token.

import { kept, say } from "/device_key.js";

const SHELL = "skillhouse-shell-1";
const HOME = "/companion/";
const FILES = [
  HOME,
  "/style.css",
  "/approvals.css",
  "/companion.css",
  "/companion.js",
  "/device_key.js",
  "/icon.svg",
  "/companion/manifest.webmanifest",
];

self.addEventListener("install", (event) => {
  const fresh = FILES.map((path) => new Request(path, { cache: "reload", credentials: "omit" }));
  event.waitUntil(caches.open(SHELL).then((cache) => cache.addAll(fresh)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const others = async () => {
    for (const name of await caches.keys()) if (name !== SHELL) await caches.delete(name);
    await self.clients.claim();
  };
  event.waitUntil(others());
});

/* The network first: what is kept answers where skillhouse does not. */
async function shell(request, path) {
  const cache = await caches.open(SHELL);
  try {
    const answer = await fetch(request);
    if (answer.ok) await cache.put(path, answer.clone());
    return answer;
  } catch (error) {
    const found = await cache.match(path);
    if (found) return found;
    throw error;
  }
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  if (FILES.includes(url.pathname) && !url.search) event.respondWith(shell(request, url.pathname));
});

/* A push says that a question waits, and of which tool; the words are those of the app. */

async function shown(data) {
  const texts = (await kept("texts")) ?? {};
  const tool = String(data.tool ?? "").slice(0, 80);
  const words = (texts[data.kind] ?? "skillhouse: {tool}").replace("{tool}", () => tool);
  await self.registration.showNotification("skillhouse", {
    body: words,
    icon: "/companion/icon-192.png",
    tag: `${data.kind}-${data.id ?? ""}`,
    lang: texts.lang,
  });
}

async function pushed(event) {
  let data = {};
  try {
    data = event.data?.json() ?? {};
  } catch {
    data = {};
  }
  await shown(data);
  // That it was delivered is a sign of life, which only this device can give.
  await say({ do: "alive" }).catch(() => null);
}

self.addEventListener("push", (event) => event.waitUntil(pushed(event)));

async function opened() {
  const windows = await self.clients.matchAll({ type: "window" });
  const open = windows.find((one) => new URL(one.url).pathname === HOME);
  return open ? open.focus() : self.clients.openWindow(HOME);
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(opened());
});
