// Script of the console: what HTML alone cannot do. Nothing here makes HTML from text.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;

  const rowsMax = 200;

  // A time is shown in UTC; its tooltip has the reader's own zone.
  const localTimes = (within) => {
    for (const each of within.querySelectorAll("time[datetime]:not([title])")) {
      const at = new Date(each.dateTime);
      if (!Number.isNaN(at.valueOf())) each.title = `${at.toLocaleString()} here`;
    }
  };

  // A tail keeps its newest rows only.
  const trimTail = () => {
    const body = document.querySelector("#tail-rows");
    if (body) while (body.rows.length > rowsMax) body.deleteRow(-1);
  };

  document.addEventListener("DOMContentLoaded", () => {
    localTimes(document);
    document.querySelector("#theme")?.addEventListener("click", () => {
      const isDark = getComputedStyle(root).colorScheme === "dark"
        || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
      root.dataset.theme = isDark ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a browser without storage */ }
    });
    for (const each of document.querySelectorAll("form[data-submit-on-change]")) {
      each.addEventListener("change", () => each.requestSubmit());
    }
    document.querySelector("#tail-pause")?.addEventListener("click", (event) => {
      const isPaused = event.target.getAttribute("aria-pressed") !== "true";
      event.target.setAttribute("aria-pressed", String(isPaused));
      event.target.textContent = isPaused ? "Continue" : "Pause";
      document.querySelector("#tail-state")?.classList.toggle("off", isPaused);
    });
  });

  // Live figures are replaced as a whole: what the reader has unfolded stays unfolded.
  const unfolded = new Set();
  const summaryOf = (each) => each.querySelector(":scope > summary")?.textContent;
  document.addEventListener("toggle", (event) => {
    if (!(event.target instanceof HTMLDetailsElement)) return;
    if (event.target.open) unfolded.add(summaryOf(event.target));
    else unfolded.delete(summaryOf(event.target));
  }, true);
  const unfold = (within) => {
    for (const each of within.querySelectorAll("details")) if (unfolded.has(summaryOf(each))) each.open = true;
  };

  // The dot is green while figures or records arrive.
  const setLive = (isLive) => {
    for (const each of document.querySelectorAll(".page-head .live")) {
      each.classList.toggle("off", !isLive);
      each.textContent = isLive ? "live" : "not connected";
    }
    const tail = document.querySelector("#tail-state"); // the stream itself says when it is live
    if (tail && !isLive) {
      tail.classList.add("off");
      tail.textContent = "not connected";
    }
  };

  // htmx connects a broken stream again, but not one whose first request failed.
  const address = "hx-sse:connect";
  const retryFirstMs = 500;
  const retryLastMs = 30_000;
  let retryMs = retryFirstMs;
  const connectAgain = (element) => {
    setLive(false);
    setTimeout(() => {
      if (element.isConnected) htmx.ajax("GET", element.getAttribute(address), { source: element });
    }, retryMs);
    retryMs = Math.min(2 * retryMs, retryLastMs);
  };
  document.addEventListener("htmx:sse:error", () => setLive(false));
  document.addEventListener("htmx:sse:after:connection", () => {
    retryMs = retryFirstMs;
    setLive(true);
  });
  document.addEventListener("htmx:error", ({ target }) => {
    if (target instanceof Element && target.hasAttribute(address)) connectAgain(target);
  });
  document.addEventListener("htmx:before:response", (event) => {
    const type = event.detail.ctx.response.headers.get("content-type") ?? "";
    if (!event.target.hasAttribute?.(address) || type.includes("text/event-stream")) return;
    event.preventDefault(); // the page of an error does not belong into the figures
    connectAgain(event.target);
  });

  // A paused tail drops what arrives: the reader keeps what is on the page.
  document.addEventListener("htmx:sse:before:message", (event) => {
    if (document.querySelector("#tail-pause[aria-pressed=true]")) event.preventDefault();
  });
  for (const name of ["htmx:sse:after:message", "htmx:after:swap"]) {
    document.addEventListener(name, (event) => {
      trimTail();
      localTimes(event.target instanceof Element ? event.target : document);
      unfold(document);
    });
  }

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      const search = document.querySelector("input[type=search]");
      if (search) { event.preventDefault(); search.focus(); }
    }
  });
})();
