"use strict";
// Keeps the page as the workspace is (server-sent events), and sends what the person types and clicks. The server renders;
// here nothing is made of text but text.

const { me, version } = document.body.dataset;
const find = (id) => document.getElementById(id);
const [list, pane, replies, box, hints, sent] = ["messages", "thread", "replies", "box", "hints", "sent"].map(find);

// -- keeping up ------------------------------------------------------------------------------------------------------

const events = new EventSource(`events?as=${me}&after=${version}`);
events.addEventListener("open", () => { find("lost").hidden = true; });
events.addEventListener("error", () => { find("lost").hidden = false; });

events.addEventListener("status", (event) => {
  const { connected, topic } = JSON.parse(event.data);
  find("bot").dataset.connected = connected ? "yes" : "no";
  find("topic").textContent = topic;
});

events.addEventListener("message", (event) => {
  const told = JSON.parse(event.data);
  if (told.mine) sent.textContent = "";
  if (!told.thread) place(list, told);
  const root = told.thread || told.ts;
  if (pane.dataset.ts === root) place(replies, told);
  else if (told.thread && told.mine && told.html) openThread(root); // an answer that nobody else sees must be seen
  arrived?.push(told);
});

// A message takes the place of its older self; a new one goes to the end, if it is newer than what stands there.
function place(where, told) {
  const old = where.querySelector(`[data-ts="${told.ts}"]`);
  const atEnd = where.scrollHeight - where.scrollTop - where.clientHeight < 60;
  if (!told.html) old?.remove();
  else if (old) replace(old, told.html);
  else if (told.ts > (where.querySelector("article:last-of-type")?.dataset.ts ?? "")) where.insertAdjacentHTML("beforeend", told.html);
  where.querySelector(".empty")?.remove();
  if (atEnd) where.scrollTop = where.scrollHeight;
}

function replace(old, html) {
  const focused = old.contains(document.activeElement) ? document.activeElement.dataset.action : undefined;
  old.insertAdjacentHTML("afterend", html);
  const fresh = old.nextElementSibling;
  if (fresh.querySelector(".body").textContent !== old.querySelector(".body").textContent) fresh.classList.add("changed");
  old.remove();
  if (focused) [...fresh.querySelectorAll("[data-action]")].find((button) => button.dataset.action === focused)?.focus();
}

// -- the thread ------------------------------------------------------------------------------------------------------

let arrived = null; // what is told while a thread is being fetched

async function openThread(ts, byHand = false) {
  const meanwhile = (arrived = []);
  const answer = await fetch(`thread?as=${me}&ts=${ts}`);
  if (!answer.ok) return;
  replies.innerHTML = await answer.text();
  pane.hidden = false;
  pane.dataset.ts = ts;
  meanwhile.filter((told) => (told.thread || told.ts) === ts).forEach((told) => place(replies, told));
  arrived = null;
  replies.scrollTop = replies.scrollHeight;
  if (byHand) pane.querySelector("h2").focus();
  remember(ts);
}

function closeThread() {
  pane.hidden = true;
  pane.dataset.ts = "";
  remember("");
}

function remember(thread) {
  history.replaceState(null, "", thread ? `?as=${me}&thread=${thread}` : `?as=${me}`);
}

// -- clicks ----------------------------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.action) press(button);
  else if (button?.dataset.open) openThread(button.dataset.open, true);
  else if (button?.dataset.dismiss) post("dismiss", { ts: button.dataset.dismiss });
  else if (button?.id === "close") closeThread();
});

async function press(button) {
  if (button.ariaBusy === "true") return;
  if (button.dataset.confirm && !(await sure(JSON.parse(button.dataset.confirm)))) return;
  button.ariaBusy = "true";
  await post("click", { ts: button.closest("article").dataset.ts, action: button.dataset.action });
  button.ariaBusy = null;
}

function sure({ title, text, confirm, deny }) {
  const dialog = find("sure");
  const [no, yes] = dialog.querySelectorAll("menu button");
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector("p").textContent = text;
  [no.textContent, yes.textContent] = [deny, confirm];
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  });
}

async function post(what, said) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ as: me, ...said }) };
  return fetch(what, options).then((answer) => answer.ok, () => false);
}

// -- typing ----------------------------------------------------------------------------------------------------------

const typed = []; // for the arrow up
const rows = [...hints.children];
const shown = () => rows.filter((row) => !row.hidden);

find("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const line = box.value.trim();
  if (!line) return;
  typed.push(line);
  box.value = "";
  hint();
  sent.textContent = line.startsWith("/") ? `Asked xidbot: ${line}` : "";
  if (!(await post("type", { line }))) sent.textContent = "That could not be sent.";
});

box.addEventListener("input", hint);
box.addEventListener("blur", () => setTimeout(() => { hints.hidden = true; }, 150));
box.addEventListener("focus", hint);
hints.addEventListener("mousedown", (event) => {
  event.preventDefault();
  const row = event.target.closest("li");
  if (row) complete(row);
});

// Commands that begin as the line does, and the one that the line already is.
function hint() {
  const line = box.value;
  for (const row of rows) {
    const command = row.dataset.typed;
    row.hidden = !(line.startsWith("/") && (command.startsWith(line) || line === command || line.startsWith(`${command} `)));
  }
  choose(null);
  hints.hidden = !shown().length;
  box.ariaExpanded = String(!hints.hidden);
}

function choose(row) {
  for (const other of rows) other.ariaSelected = String(other === row);
  box.setAttribute("aria-activedescendant", row?.id ?? "");
  row?.scrollIntoView({ block: "nearest" });
}

function complete(row) {
  box.value = `${row.dataset.typed} `;
  hint();
}

box.addEventListener("keydown", (event) => {
  const open = hints.hidden ? [] : shown();
  const at = open.findIndex((row) => row.ariaSelected === "true");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = open[at] ?? (event.key === "Tab" && open.find((one) => !box.value.startsWith(one.dataset.typed)));
  if (step && open.length) choose(open[(at + step + open.length + (at < 0 && step < 0 ? 1 : 0)) % open.length]);
  else if (event.key === "ArrowUp" && !box.value && typed.length) { box.value = typed.at(-1); hint(); }
  else if (["Enter", "Tab"].includes(event.key) && row) complete(row);
  else if (event.key === "Escape" && open.length) { hints.hidden = true; event.stopPropagation(); }
  else return;
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (find("sure").open) return;
  if (event.key === "Escape" && !pane.hidden) closeThread();
  if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); box.value ||= "/"; hint(); }
});

list.scrollTop = list.scrollHeight;
replies.scrollTop = replies.scrollHeight;
