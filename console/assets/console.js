// Keyboard: "/" goes to the search box, Escape leaves it. Open pages are refreshed within a second of a change that
// they show, whatever else changes. Pages work without this script.
"use strict";
document.addEventListener("keydown", (event) => {
  const search = document.querySelector("[data-search]");
  const typing = event.target.closest && event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && search) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "Escape" && event.target === search) {
    search.blur();
  }
});

// Times are UTC; the time of the viewer's own zone is in their titles.
const local = (page) => page.querySelectorAll("time[datetime], .time").forEach((shown) => {
  const at = new Date(shown.dateTime || `${shown.textContent.trim().replace(" ", "T")}Z`);
  if (!shown.title && !Number.isNaN(at.getTime())) shown.title = at.toLocaleString(undefined, { timeZoneName: "short" });
});
local(document.body);

// The text of a file is pasted, or read from one that is chosen. Banks write UTF-8 or Latin-1.
document.querySelectorAll("textarea[data-file]").forEach((text) => {
  const file = document.createElement("input");
  file.type = "file";
  file.setAttribute("aria-label", "Read from a file");
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    const bytes = await chosen.arrayBuffer();
    try {
      text.value = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      text.value = new TextDecoder("windows-1252").decode(bytes);
    }
  });
  text.before(file);
});

const live = document.querySelector("main[data-live]");
if (live && window.EventSource) {
  const EVERY_MS = 350;
  const RETRY_MS = 10000;
  const subjects = live.dataset.live.split(" ");
  let isDue = false;
  let isBusy = false;
  let next = 0;
  let failures = 0;
  let timer = 0;
  // The request in progress. A form that is sent opens another page and may end the session, so it cancels the request.
  let reading = null;
  let isLeaving = false;
  // What an operator has chosen or typed and not sent yet.
  const isChanged = (field) => {
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
    const chosen = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(chosen, 0);
  };
  const isEditing = () => {
    const focused = document.activeElement;
    const selection = window.getSelection();
    return live.contains(focused) && focused.matches("input, select, textarea, button")
      || [...live.querySelectorAll("input, select, textarea")].some(isChanged)
      || Boolean(selection && !selection.isCollapsed);
  };
  // Where the focus is, so that it stays there: the link's address, or what the table is of.
  const place = (element) => element.getAttribute("href") || element.getAttribute("aria-labelledby");
  const replace = (fresh) => {
    const scrolled = [...live.querySelectorAll(".table")].map((table) => table.scrollLeft);
    const focused = live.contains(document.activeElement) ? place(document.activeElement) : null;
    live.replaceChildren(...fresh.childNodes);
    [...live.querySelectorAll(".table")].forEach((table, index) => { table.scrollLeft = scrolled[index] || 0; });
    const again = focused && [...live.querySelectorAll("a, .table")].find((one) => place(one) === focused);
    if (again) again.focus({ preventScroll: true });
  };
  const refresh = async () => {
    clearTimeout(timer);
    if (!isDue || isBusy || isLeaving || document.hidden || isEditing()) return;
    const wait = next - Date.now();
    if (wait > 0) { timer = setTimeout(refresh, wait); return; }
    isDue = false;
    isBusy = true;
    next = Date.now() + EVERY_MS;
    reading = new AbortController();
    try {
      const answer = await fetch(location.href, {
        redirect: "manual", signal: reading.signal, headers: { accept: "text/html", "x-refresh": "1" },
      });
      // The session has ended: these requests do not prolong it. The page's address leads to the sign-in and back.
      if (answer.type === "opaqueredirect") {
        isLeaving = true;
        location.replace(location.pathname + location.search);
        return;
      }
      if (!answer.ok) throw new Error(answer.statusText);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      failures = 0;
      if (fresh) local(fresh);
      // What is unfolded stays so.
      const folds = fresh ? [...fresh.querySelectorAll("details")] : [];
      live.querySelectorAll("details").forEach((fold, index) => { if (folds[index]) folds[index].open = fold.open; });
      if (isEditing()) isDue = true;
      else if (fresh && fresh.innerHTML !== live.innerHTML) replace(fresh);
    } catch (error) {
      isDue = true;
      failures += 1;
      next = Date.now() + Math.min(RETRY_MS, EVERY_MS * 2 ** failures);
    } finally {
      isBusy = false;
      // What changed meanwhile is not in the answer.
      refresh();
    }
  };
  const note = () => { isDue = true; refresh(); };
  // A hidden page has no connection: browsers open few to one host.
  let events = null;
  const listen = () => {
    if (document.hidden || events) return;
    events = new EventSource("/live");
    // Changes before the connection are not announced.
    events.onopen = note;
    events.onmessage = (event) => { if (event.data.split(" ").some((one) => subjects.includes(one))) note(); };
  };
  const leave = () => {
    if (events) events.close();
    events = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", () => {
    isLeaving = false;
    listen();
  });
  // The end of what kept the page as it is.
  for (const end of ["focusout", "selectionchange", "change", "reset"]) {
    document.addEventListener(end, () => setTimeout(refresh));
  }
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented) return;
    isLeaving = true;
    if (reading) reading.abort();
    // A form may lead to a file, and the page stays.
    setTimeout(() => { isLeaving = false; refresh(); }, RETRY_MS);
  });
  listen();
  setInterval(note, 10000);
}
