// A page to chat with the server that serves it. What a model writes becomes text nodes, never HTML.

const $ = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];
const KEPT = [...NUMBERS, "system", "theme"];       // in this browser; the key only in this tab
const NEAR_END_PX = 80;

let messages = [];          // {role, content, reasoning_content} as the API has them
let running = null;         // the AbortController of the answer that comes

// ---- elements

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function copyButton(textOf) {
  const button = element("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    button.textContent = (await copied(textOf())) ? "Copied" : "No access to the clipboard";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {                 // without https a browser has no clipboard for pages, but the old way
    const area = element("textarea", { value: text });
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

// ---- Markdown: the blocks of a text, then their elements

const FENCE = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/;
const ITEM = /^\s*(?:[-*+]|(\d+)[.)])\s+(.*)$/;
const CELLS = /^\s*\|(.+)\|\s*$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const KINDS = [["heading", /^#{1,6}\s+\S/], ["rule", RULE], ["item", ITEM], ["quote", /^\s*>/], ["table", CELLS],
  ["text", /\S/]];

function blocksOf(text) {
  const blocks = [];
  let open = null;          // the block that the next line may belong to
  for (const line of text.split("\n")) {
    if (open?.kind === "code") {
      if (line.trimStart().startsWith(open.fence) && line.trim() === open.fence[0].repeat(line.trim().length)) open = null;
      else open.lines.push(line);
      continue;
    }
    const fence = FENCE.exec(line);
    if (fence) {
      open = { kind: "code", fence: fence[1], language: fence[2], lines: [] };
      blocks.push(open);
      continue;
    }
    let kind = KINDS.find(([, pattern]) => pattern.test(line))?.[0];
    if (kind === "text" && open?.kind === "item" && /^\s/.test(line)) kind = "item";       // an item's next line
    if (!kind) {
      open = null;
    } else if (open && open.kind === kind && kind !== "heading" && kind !== "rule") {
      open.lines.push(line);
    } else {
      open = { kind, lines: [line] };
      blocks.push(open);
    }
  }
  return blocks;
}

function blockElement({ kind, lines, language }) {
  switch (kind) {
    case "code": return codeElement(lines.join("\n"), language);
    case "heading": {
      const level = Math.min(4, 1 + /^#+/.exec(lines[0])[0].length);
      return element(`h${level}`, {}, ...inline(lines[0].replace(/^#+\s+|\s+#+\s*$/g, "")));
    }
    case "rule": return element("hr");
    case "quote": return element("blockquote", {}, ...inline(lines.map((line) => line.replace(/^\s*>\s?/, "")).join("\n")));
    case "item": return listElement(lines);
    case "table": return tableElement(lines);
    default: return element("p", {}, ...inline(lines.join("\n")));
  }
}

function codeElement(code, language) {
  const head = element("div", { className: "head" }, element("span", { textContent: language }), copyButton(() => code));
  return element("div", { className: "code" }, head, element("pre", {}, element("code", { textContent: code })));
}

function listElement(lines) {
  const first = ITEM.exec(lines[0]);
  const list = first[1] ? element("ol", { start: Number(first[1]) }) : element("ul");
  const texts = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item) texts.push(item[2]);
    else texts[texts.length - 1] += `\n${line.trim()}`;
  }
  list.append(...texts.map((text) => element("li", {}, ...inline(text))));
  return list;
}

function tableElement(lines) {
  const rows = lines.map((line) => CELLS.exec(line)[1].split("|").map((cell) => cell.trim()));
  const hasHead = rows.length > 1 && rows[1].every((cell) => /^:?-+:?$/.test(cell));
  const row = (cells, name) => element("tr", {}, ...cells.map((cell) => element(name, {}, ...inline(cell))));
  const body = hasHead ? rows.slice(2) : rows;
  return element("table", {}, ...(hasHead ? [row(rows[0], "th")] : []), ...body.map((cells) => row(cells, "td")));
}

const INLINE = /(`+)(.+?)\1(?!`)|\*\*(\S(?:.*?\S)?)\*\*|\*(\S(?:[^*]*?\S)?)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/s;

function inline(text) {
  const found = INLINE.exec(text);
  if (!found) return [text];
  const [whole, , code, strong, emphasis, label, url] = found;
  let made;
  if (code !== undefined) made = element("code", { textContent: code });
  else if (strong !== undefined) made = element("strong", {}, ...inline(strong));
  else if (emphasis !== undefined) made = element("em", {}, ...inline(emphasis));
  else made = element("a", { href: url, target: "_blank", rel: "noopener noreferrer", textContent: label });
  return [text.slice(0, found.index), made, ...inline(text.slice(found.index + whole.length))];
}

function showMarkdown(body, text) {
  const blocks = blocksOf(text);
  blocks.forEach((block, i) => {
    const source = JSON.stringify(block);
    const old = body.children[i];
    if (old?.source === source) return;         // what is shown already is left alone, with what is selected in it
    const made = Object.assign(blockElement(block), { source });
    if (old) old.replaceWith(made);
    else body.append(made);
  });
  while (body.children.length > blocks.length) body.lastChild.remove();
}

// ---- the log

function addMessage(message) {
  $("welcome")?.remove();
  const body = element("div", { className: "body" });
  const box = element("article", { className: `message ${message.role}` }, body);
  box.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
  $("log").append(box);
  if (message.role === "user") body.textContent = message.content;
  return box;
}

function showAnswer(box, answer) {
  const log = $("log");
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX;
  if (answer.reasoning_content) {
    let reasoning = box.querySelector(".reasoning");
    if (!reasoning) {
      reasoning = element("details", { className: "reasoning" }, element("summary", { textContent: "Reasoning" }),
        element("div"));
      box.prepend(reasoning);
    }
    reasoning.lastChild.textContent = answer.reasoning_content;
  }
  showMarkdown(box.querySelector(".body"), answer.content);
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

function addFoot(box, answer, note) {
  for (const old of document.querySelectorAll(".retry")) old.remove();
  const retry = element("button", { type: "button", className: "retry", textContent: "Try again" });
  retry.addEventListener("click", () => {
    if (running) return;
    messages = messages.slice(0, messages.findLastIndex((message) => message.role === "user") + 1);
    box.remove();
    complete();
  });
  box.append(element("div", { className: "foot" }, ...(answer.content ? [copyButton(() => answer.content)] : []), retry,
    element("span", { textContent: note })));
}

function addError(box, text) {
  const shown = element("p", { className: "error", textContent: text });
  shown.setAttribute("role", "alert");
  box.append(shown);
}

// ---- the server

function ask(path, options = {}) {
  const key = sessionStorage.getItem("key");
  return fetch(path, { ...options, headers: { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) } });
}

async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (waiting + value).split(/\r?\n\r?\n/);
    waiting = frames.pop();
    for (const frame of frames) {
      const data = frame.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function problemOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return error.message ?? String(error);
  } catch {
    return text || `${response.status} ${response.statusText}`;
  }
}

function bodyOf() {
  const kept = settings();
  const system = kept.system.trim() ? [{ role: "system", content: kept.system }] : [];
  const numbers = NUMBERS.filter((name) => kept[name] !== "").map((name) => [name, Number(kept[name])]);
  return JSON.stringify({ ...Object.fromEntries(numbers), messages: [...system, ...messages], stream: true,
    ...($("model").value ? { model: $("model").value } : {}), stream_options: { include_usage: true } });
}

async function complete() {
  const mine = messages;        // a new chat may begin meanwhile
  const answer = { role: "assistant", content: "" };
  const box = addMessage(answer);
  const told = { n: 0, startMs: performance.now(), firstMs: 0, timings: null, usage: null, reason: "", isDrawing: false };
  running = new AbortController();
  setRunning(true);
  try {
    const response = await ask("v1/chat/completions", { method: "POST", body: bodyOf(), signal: running.signal,
      headers: { "Content-Type": "application/json" } });
    if (!response.ok) throw new Error(await problemOf(response));
    for await (const event of eventsOf(response)) take(event, answer, told, box);
  } catch (error) {
    if (error.name === "AbortError") told.reason = "stopped";
    else addError(box, error instanceof TypeError ? `The server cannot be reached (${error.message}).` : error.message);
  }
  running = null;
  setRunning(false);
  showAnswer(box, answer);
  if (answer.content || answer.reasoning_content) mine.push(answer);
  addFoot(box, answer, noteOf(told));
  $("status").textContent = "";
}

function take(event, answer, told, box) {
  if (event.error) throw new Error(event.error.message ?? String(event.error));
  told.timings = event.timings ?? told.timings;
  told.usage = event.usage ?? told.usage;
  const choice = event.choices?.[0];
  if (!choice) return;
  told.reason = choice.finish_reason ?? told.reason;
  const { content, reasoning_content: thought } = choice.delta;
  if (content || thought) {
    told.n += 1;
    told.firstMs ||= performance.now();
    answer.content += content ?? "";
    if (thought) answer.reasoning_content = (answer.reasoning_content ?? "") + thought;
  }
  if (told.isDrawing) return;
  told.isDrawing = true;        // as often as the screen is drawn, not with each token
  requestAnimationFrame(() => {
    told.isDrawing = false;
    if (!running) return;
    showAnswer(box, answer);
    $("status").textContent = told.firstMs ? `${speedOf(told).toFixed(1)} tokens/s` : "";
  });
}

function speedOf(told) {
  const seconds = (performance.now() - told.firstMs) / 1000;
  return seconds > 0 ? Math.max(0, told.n - 1) / seconds : 0;
}

function noteOf(told) {
  const { timings, usage, reason } = told;
  const n = timings?.predicted_n ?? usage?.completion_tokens ?? told.n;
  const speed = timings?.predicted_per_second ?? (told.firstMs ? speedOf(told) : 0);
  const parts = n ? [`${n} tokens`, ...(speed ? [`${speed.toFixed(1)} tokens/s`] : [])] : [];
  if (told.firstMs) parts.push(`first after ${((told.firstMs - told.startMs) / 1000).toFixed(2)} s`);
  if (reason === "length") parts.push("cut off: the limit of tokens");
  if (reason === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

async function waitForModel() {
  for (;;) {
    let state = "The server cannot be reached.";
    try {
      const response = await fetch("health");
      if (response.ok) return;
      state = await problemOf(response);
    } catch { /* it is told below, and tried again */ }
    $("status").textContent = state;
    await new Promise((resolve) => { setTimeout(resolve, 1000); });
  }
}

async function showModels() {
  const response = await ask("v1/models");
  if (!response.ok) {
    $("status").textContent = await problemOf(response);
    return;
  }
  const names = (await response.json()).data.map((model) => model.id);
  $("model").hidden = names.length < 2;
  $("model").replaceChildren(...names.map((name) => element("option", { value: name, textContent: name })));
  $("only-model").textContent = names.length === 1 ? names[0].split("/").pop() : names.length ? "" : "no model is here";
  if (names.includes(localStorage.getItem("model"))) $("model").value = localStorage.getItem("model");
  $("status").textContent = "";
  await showDefaults(names.length === 1);
}

async function showDefaults(isKnown) {
  const response = isKnown ? await ask("props") : null;
  const params = response?.ok ? (await response.json()).default_generation_settings?.params ?? {} : {};
  for (const name of NUMBERS) {
    if (name in params && name !== "seed" && !(name === "max_tokens" && params[name] < 0)) {
      form()[name].placeholder = String(Number(params[name].toFixed(4)));
    }
  }
}

// ---- settings

function form() {
  return $("settings").querySelector("form").elements;
}

function settings() {
  return Object.fromEntries(KEPT.map((name) => [name, localStorage.getItem(name) ?? ""]));
}

function showSettings() {
  for (const [name, value] of Object.entries(settings())) form()[name].value = value;
  form().key.value = sessionStorage.getItem("key") ?? "";
  document.documentElement.dataset.theme = settings().theme;
}

function keepSettings() {
  for (const name of KEPT) localStorage.setItem(name, form()[name].checkValidity() ? form()[name].value : "");
  const hadKey = sessionStorage.getItem("key") ?? "";
  sessionStorage.setItem("key", form().key.value.trim());
  showSettings();
  if (hadKey !== form().key.value) showModels();
}

// ---- what a user does

function setRunning(isRunning) {
  $("send").hidden = isRunning;
  $("stop").hidden = !isRunning;
  $("log").setAttribute("aria-busy", String(isRunning));
}

function send() {
  const text = $("prompt").value.trim();
  if (!text || running) return;
  $("prompt").value = "";
  messages.push({ role: "user", content: text });
  addMessage(messages.at(-1));
  $("log").scrollTop = $("log").scrollHeight;
  complete();
}

function newChat() {
  running?.abort();
  messages = [];
  $("log").replaceChildren();
  $("prompt").focus();
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
$("stop").addEventListener("click", () => running?.abort());
$("new-chat").addEventListener("click", newChat);
$("open-settings").addEventListener("click", () => $("settings").showModal());
$("settings").addEventListener("close", keepSettings);
$("reset").addEventListener("click", () => { for (const name of KEPT) form()[name].value = ""; });
$("model").addEventListener("change", () => localStorage.setItem("model", $("model").value));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !$("settings").open) running.abort();
  if (event.altKey && event.key.toLowerCase() === "n") { event.preventDefault(); newChat(); }
});

showSettings();
await waitForModel();
await showModels();
