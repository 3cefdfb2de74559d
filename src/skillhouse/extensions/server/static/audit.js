// Shows what verifying the log found; the words are in the page.

document.getElementById("verify").addEventListener("answered", ({ detail }) => {
  if (!detail.ok) return;
  const place = document.getElementById("verified");
  const { ok, records, problems } = detail.value;
  for (const part of place.querySelectorAll("[data-when]")) {
    part.hidden = part.dataset.when !== (ok ? "whole" : "changed");
    part.querySelector("[data-records]").textContent = records.toLocaleString(document.documentElement.lang);
  }
  const items = problems.slice(0, 20).map(({ line, code, message }) => {
    const item = document.createElement("li");
    item.textContent = `${line}: ${message} [${code}]`;
    return item;
  });
  place.querySelector("[data-problems]").replaceChildren(...items);
});
