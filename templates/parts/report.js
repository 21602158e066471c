// What the page can do besides being read. Without it all rows are shown, and everything can still be opened by hand.
(() => {
  "use strict";
  const matrix = document.getElementById("rows");
  const panel = document.getElementById("filter");
  const opened = (details) => { for (const one of details) one.open = true; };

  // A link to something inside a closed part opens it; one to a row that the filter hides takes the filter off.
  const arrive = () => {
    let name = location.hash.slice(1);
    if (!name) return;
    let target = document.getElementById(name);
    if (!target) {
      try { name = decodeURIComponent(name); } catch { return; }
      target = document.getElementById(name);
    }
    if (!target) return;
    const row = target.closest("tr[data-row]");
    if (row && row.hidden) reset();
    const inside = [];
    for (let at = target.closest("details"); at; at = at.parentElement.closest("details")) inside.push(at);
    opened(inside);
    target.scrollIntoView();
    const summary = inside.length ? inside[0].querySelector("summary") : target;
    summary.focus({ preventScroll: true });
  };

  let reset = () => {};
  if (matrix && panel) {
    const rows = Array.from(matrix.querySelectorAll("tr[data-row]"));
    const bodies = Array.from(matrix.tBodies);
    const words = panel.querySelector("#words");
    const group = panel.querySelector("#group");
    const place = panel.querySelector("#place");
    const differences = document.getElementById("differences");
    const statuses = Array.from(panel.querySelectorAll("input[name=status]"));
    const told = panel.querySelector("#told");
    const texts = rows.map((row) => row.cells[0].textContent.toLowerCase());
    const states = rows.map((row) => row.dataset.states.split(" "));

    const apply = () => {
      const wanted = new Set(statuses.filter((box) => box.checked).map((box) => box.value));
      const text = words.value.trim().toLowerCase();
      const at = place && place.value !== "" ? Number(place.value) : -1;
      let shown = 0;
      rows.forEach((row, number) => {
        const seen = at < 0 ? states[number] : [states[number][at]];
        const stays = (!wanted.size || seen.some((state) => wanted.has(state)))
          && (!group.value || row.dataset.group === group.value)
          && (!differences || !differences.checked || row.dataset.differs === "yes")
          && (!text || texts[number].includes(text));
        row.hidden = !stays;
        shown += stays ? 1 : 0;
      });
      for (const body of bodies) body.hidden = !body.querySelector("tr[data-row]:not([hidden])");
      told.textContent = shown === rows.length ? `All ${rows.length} rows are shown.`
        : `${shown} of ${rows.length} rows are shown.`;
      keep([...wanted], text, at);
    };

    // The filter is part of the address, so that a filtered matrix can be sent to somebody.
    const keep = (wanted, text, at) => {
      const query = new URLSearchParams();
      if (wanted.length) query.set("status", wanted.join(","));
      if (group.value) query.set("group", group.value);
      if (at >= 0) query.set("on", String(at));
      if (differences && differences.checked) query.set("differences", "yes");
      if (text) query.set("words", text);
      const said = query.toString();
      try { history.replaceState(null, "", `${location.pathname}${said ? `?${said}` : ""}${location.hash}`); }
      catch { /* a page without an address of its own cannot keep it */ }
    };

    const recall = () => {
      const query = new URLSearchParams(location.search);
      const wanted = new Set((query.get("status") || "").split(","));
      for (const box of statuses) box.checked = wanted.has(box.value);
      const asked = query.get("group") || "";
      group.value = Array.from(group.options).some((option) => option.value === asked) ? asked : "";
      if (place) place.value = place.options[Number(query.get("on") ?? "-1") + 1] ? query.get("on") ?? "" : "";
      if (differences) differences.checked = query.get("differences") === "yes";
      words.value = query.get("words") || "";
    };

    reset = () => {
      for (const box of statuses) box.checked = false;
      if (differences) differences.checked = false;
      group.value = "";
      if (place) place.value = "";
      words.value = "";
      apply();
    };

    recall();
    panel.addEventListener("input", apply);
    if (differences) differences.addEventListener("input", apply);
    panel.querySelector("#reset").addEventListener("click", () => { reset(); words.focus(); });
    panel.hidden = false;
    apply();
  }

  const evidence = document.getElementById("all-evidence");
  if (evidence) {
    const every = () => document.querySelectorAll("#evidence ~ details");
    evidence.hidden = false;
    evidence.querySelector("#open-shortfalls").addEventListener("click", () => {
      opened(document.querySelectorAll("#evidence ~ details.shortfall"));
    });
    evidence.querySelector("#close-all").addEventListener("click", () => {
      for (const one of every()) one.open = false;
    });
  }

  addEventListener("hashchange", arrive);
  // Once more after loading: the browser goes to the place by itself then, and takes the focus away.
  addEventListener("load", () => setTimeout(arrive));
  arrive();
})();
