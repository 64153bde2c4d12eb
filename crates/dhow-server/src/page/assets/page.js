// Keeps an open page up to date, shows times as ages, follows a log, and gives the keyboard its ways. Every page works
// without it. What comes from the server as HTML was made there with everything escaped; lines of logs are set as text.
"use strict";
(() => {
  const body = document.body;
  const place = body.dataset.place;

  // ---- ages
  const age = (time) => {
    const secs = Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000);
    if (!time.title) time.title = time.dateTime.replace("T", " ").replace("Z", " UTC");
    const [number, unit] =
      secs < 5 ? [0, ""] : secs < 60 ? [secs, "s"] : secs < 3600 ? [secs / 60, "min"]
      : secs < 172800 ? [secs / 3600, "h"] : [secs / 86400, "d"];
    const ahead = Date.parse(time.dateTime) - Date.now() > 1000;
    const text = ahead ? time.title : unit ? `${Math.floor(number)} ${unit} ago` : "now";
    if (time.textContent !== text) time.textContent = text;
  };
  const ages = (root) => root.querySelectorAll("time[data-age]").forEach(age);
  ages(document);
  setInterval(() => { if (!document.hidden) ages(document); }, 5000);

  // ---- taking over what has changed, so that the focus, a selection and what is open stay
  const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || "" : "");
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
  const morph = (old, fresh) => {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    const isAge = old.nodeName === "TIME" && "age" in old.dataset;
    const isSame = isAge && old.dateTime === fresh.dateTime;
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      const isOwn = (old.nodeName === "DETAILS" && name === "open") || (isAge && name === "title");
      if (!fresh.hasAttribute(name) && !isOwn) old.removeAttribute(name);
    }
    if (isSame) return;
    if (old.nodeName === "INPUT" || old.nodeName === "TEXTAREA" || old.nodeName === "SELECT") return;
    children(old, fresh);
  };
  const children = (old, fresh) => {
    const keyed = new Map();
    for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const known = keyOf(wanted) ? keyed.get(keyOf(wanted)) : at;
      if (known && alike(known, wanted) && known.parentNode === old) {
        if (known === at) at = at.nextSibling;
        else old.insertBefore(known, at);
        morph(known, wanted);
      } else {
        old.insertBefore(wanted, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  // ---- the log
  const LINES_MAX = 1000;
  const lines = document.getElementById("log-lines");
  const follow = document.getElementById("log-follow");
  const toEnd = () => { if (lines && follow.checked) lines.scrollTop = lines.scrollHeight; };
  if (lines) {
    toEnd();
    lines.addEventListener("scroll", () => {
      follow.checked = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 24;
    });
    follow.addEventListener("change", toEnd);
  }
  const addLines = (records) => {
    const added = document.createDocumentFragment();
    for (const { at, stream, text } of records) {
      const line = document.createElement("div");
      line.className = `line ${stream}`;
      const time = document.createElement("time");
      time.dateTime = new Date(at).toISOString();
      time.textContent = time.dateTime.slice(0, 19).replace("T", " ");
      const words = document.createElement("span");
      words.className = "text";
      words.textContent = text;
      line.append(time, words);
      added.append(line);
    }
    const isAtEnd = follow.checked;
    lines.append(added);
    while (lines.childElementCount > LINES_MAX) lines.firstElementChild.remove();
    if (isAtEnd) lines.scrollTop = lines.scrollHeight;
  };

  // ---- the stream: one for each page that is looked at, none for one in the background
  const shown = document.getElementById("link-state");
  const say = (state, text) => {
    if (!shown || shown.dataset.state === state) return;
    shown.dataset.state = state;
    body.toggleAttribute("data-is-live", state === "live");
    shown.textContent = text;
  };
  let source = null;
  let again = 0;
  let isOver = false;
  const have = () =>
    [...document.querySelectorAll("[data-live]")].map((block) => `${block.id.slice(2)}:${block.dataset.mark}`).join(",");
  const open = () => {
    if (source || isOver || document.hidden) return;
    const address = `/ui/live?at=${encodeURIComponent(place)}&have=${encodeURIComponent(have())}`;
    source = new EventSource(address);
    source.onopen = () => { again = 0; say("live", "live"); };
    source.onerror = () => {
      close();
      say("gone", "no connection");
      again = Math.min(again + 1, 6);
      setTimeout(open, 500 * 2 ** again);
    };
    source.addEventListener("block", (event) => {
      const { id, mark, html } = JSON.parse(event.data);
      const block = document.getElementById(`b-${id}`);
      if (!block || block.dataset.mark === mark) return;
      const fresh = document.createElement("template");
      fresh.innerHTML = html;
      children(block, fresh.content);
      block.dataset.mark = mark;
      ages(block);
    });
    source.addEventListener("log-begin", () => { if (lines) lines.replaceChildren(); });
    source.addEventListener("log", (event) => { if (lines) addLines(JSON.parse(event.data)); });
    source.addEventListener("log-over", (event) => {
      if (lines) addLines([{ at: Date.now(), stream: "notice", text: JSON.parse(event.data) }]);
    });
    const end = (text) => () => { isOver = true; close(); say("gone", text); };
    source.addEventListener("over", end("signed out: load the page again"));
    source.addEventListener("gone", end("this is gone: load the page again"));
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };
  if (place && shown) {
    open();
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
  }

  // ---- the keyboard
  const PAGES = { o: "/ui/", n: "/ui/nodes", e: "/ui/events", p: "/ui/plan" };
  let wasG = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = event.target;
    if (at.closest("input:not([type=checkbox]), textarea, select")) {
      if (event.key === "Escape") at.blur();
      return;
    }
    if (event.key === "/") {
      const search = document.querySelector("input[type=search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "Escape") {
      document.querySelectorAll("details.act[open]").forEach((action) => action.removeAttribute("open"));
    } else if (event.key === "g") {
      wasG = event.timeStamp;
    } else if (PAGES[event.key] && event.timeStamp - wasG < 1500 && place) {
      location.assign(PAGES[event.key]);
    }
  });
})();
