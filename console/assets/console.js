// Keyboard: "/" goes to the search box, Escape leaves it. Open pages are refreshed when something changed, at most once
// a second. Pages work without this script.
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

const live = document.querySelector("main[data-live]");
if (live && window.EventSource) {
  const EVERY_MS = 900;
  let isDue = false;
  let isBusy = false;
  let last = 0;
  // What an operator has chosen or typed and not sent yet.
  const isChanged = (field) => {
    if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
    const chosen = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(chosen, 0);
  };
  const isEditing = () => {
    const focused = document.activeElement;
    const selection = window.getSelection();
    return live.contains(focused) && focused.matches("input, select, textarea")
      || [...live.querySelectorAll("input, select, textarea")].some(isChanged)
      || Boolean(selection && !selection.isCollapsed);
  };
  const refresh = async () => {
    if (isBusy || document.hidden || isEditing()) return;
    const wait = last + EVERY_MS - Date.now();
    if (wait > 0) { setTimeout(refresh, wait); return; }
    if (!isDue) return;
    isDue = false;
    isBusy = true;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { redirect: "error", headers: { accept: "text/html" } });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      if (!fresh || isEditing() || fresh.innerHTML === live.innerHTML) return;
      const scrolled = [...live.querySelectorAll(".table")].map((table) => table.scrollLeft);
      const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      live.replaceChildren(...fresh.childNodes);
      [...live.querySelectorAll(".table")].forEach((table, index) => { table.scrollLeft = scrolled[index] || 0; });
      const again = focused && [...live.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    } catch (error) {
      isDue = true;
    } finally {
      isBusy = false;
    }
  };
  const note = () => { isDue = true; refresh(); };
  const events = new EventSource("/live");
  events.onmessage = note;
  document.addEventListener("visibilitychange", refresh);
  window.addEventListener("pagehide", () => events.close());
  setInterval(note, 10000);
}
