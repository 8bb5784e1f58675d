"use strict";
// The page of a mount. Text of the mount is only ever put into text nodes.

const every = 2000; // milliseconds between two samples
const shown = 90; // samples of a chart
const colours = ["#2563c9", "#d9822b", "#2f9e63", "#9b51c8", "#c2291e", "#0f9bb0", "#8a7020", "#d14f8f"];

// The token comes behind the #, and stays in this tab.
const given = location.hash.slice(1);
if (given) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
const token = sessionStorage.getItem("token") || "";

const $ = (id) => document.getElementById(id);

function node(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "rect", "text", "circle", "title"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

function size(n) {
  let unit = 0;
  for (; n >= 1024 && unit < 5; unit++) n /= 1024;
  return (unit ? n.toFixed(1) : Math.round(n)) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit];
}

const perSecond = (n) => (n >= 1 ? size(n) + "/s" : "–");
const time = (text) => new Date(text).toLocaleTimeString();

async function get(path, options) {
  const answer = await fetch(path, { headers: { Authorization: "Bearer " + token }, cache: "no-store", ...options });
  if (answer.status === 401) throw new Error("no valid token: open the address that “hmcfs page” prints");
  if (!answer.ok) throw new Error(((await answer.json().catch(() => null)) || {}).error || "status " + answer.status);
  return answer;
}

const json = async (path) => (await get(path)).json();

// lines reads an answer of one JSON value a line; each returns false to end it.
async function lines(path, each) {
  const stop = new AbortController();
  const reader = (await get(path, { signal: stop.signal })).body.getReader();
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop();
    for (const line of parts) {
      if (line && each(JSON.parse(line)) === false) {
        stop.abort();
        return;
      }
    }
  }
}

// table fills a table. A head that begins with # has numbers; a cell may be a node.
function table(id, heads, rows) {
  if (!rows.length) return $(id).replaceChildren(node("tr", {}, node("td", { class: "none" }, "none")));
  const number = heads.map((h) => (h[0] === "#" ? { class: "number" } : {}));
  const head = node("tr", {}, ...heads.map((h, i) => node("th", number[i], h.replace("#", ""))));
  const body = rows.map((r) => node("tr", {}, ...r.map((c, i) => node("td", number[i], c instanceof Node ? c : String(c ?? "")))));
  $(id).replaceChildren(head, ...body);
}

function devices(status, rates) {
  $("devices").replaceChildren(...status.devices.map((d) => node("div", { class: "device" },
    node("b", {}, d.name), node("span", {}, d.model),
    node("progress", { max: d.total || 1, value: d.used, "aria-label": d.name + " in use" }),
    node("div", {}, size(d.used) + " of " + size(d.total)), node("span", {}, perSecond(rates[d.name] || 0)))));
}

let last = null;
const history_ = []; // the rates of the last samples, by path

// rates returns the bytes per second of each path and each device since the last sample.
function rates(status) {
  const now = performance.now();
  const out = { paths: {}, devices: {}, seconds: 0 };
  const before = last && last.started === status.started ? last : null;
  out.seconds = before ? (now - before.at) / 1000 : 0;
  const bytes = {};
  for (const p of status.paths || []) {
    const key = p.path + " " + p.device;
    bytes[key] = p.bytes;
    const rate = before ? Math.max(0, p.bytes - (before.bytes[key] || 0)) / out.seconds : 0;
    out.paths[p.path] = (out.paths[p.path] || 0) + rate;
    out.devices[p.device] = (out.devices[p.device] || 0) + rate;
  }
  last = { at: now, started: status.started, bytes };
  return out;
}

// chart draws the rates of the last samples.
function chart() {
  const names = [...new Set(history_.flatMap((h) => Object.keys(h)))].sort();
  const width = 600, height = 220, left = 80, bottom = 200, top = 12;
  const most = Math.max(1024, ...history_.flatMap((h) => Object.values(h)));
  const x = (i) => left + ((width - left - 6) * (i + shown - history_.length)) / (shown - 1);
  const y = (v) => bottom - ((bottom - top) * v) / most;
  const svg = $("rates");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...[0, 0.5, 1].flatMap((share) => [
    node("line", { class: "axis", x1: left, x2: width, y1: y(most * share), y2: y(most * share) }),
    node("text", { class: "faint", x: left - 8, y: y(most * share) + 4, "text-anchor": "end" }, perSecond(most * share)),
  ]), ...names.map((name, i) => node("path", {
    fill: "none", stroke: colours[i % colours.length], "stroke-width": 2,
    d: history_.map((h, n) => (n ? "L" : "M") + x(n).toFixed(1) + " " + y(h[name] || 0).toFixed(1)).join(""),
  })));
  const now = history_[history_.length - 1] || {};
  $("legend").replaceChildren(...names.map((name, i) => node("span", {},
    node("svg", { viewBox: "0 0 10 10" }, node("circle", { cx: 5, cy: 5, r: 5, fill: colours[i % colours.length] })),
    name + " " + perSecond(now[name] || 0))));
}

// topology draws devices around what connects them: those with the most links in the middle row.
function topology(graph) {
  const svg = $("topology");
  const links = graph.links || [];
  const degree = (id) => links.filter((l) => l.a === id || l.b === id).length;
  const inner = graph.devices.filter((d) => !["accelerator", "host", "nic"].includes(d.kind));
  const rows = [graph.devices.filter((d) => d.kind === "nic" || d.kind === "host"), inner, graph.devices.filter((d) => d.kind === "accelerator")];
  const used = rows.filter((r) => r.length);
  const width = Math.max(600, 96 * Math.max(...used.map((r) => r.length))), gap = 200 / used.length;
  svg.setAttribute("viewBox", `0 0 ${width} 220`);
  const at = {};
  used.forEach((row, r) => row.sort((a, b) => degree(b.id) - degree(a.id) || (a.id < b.id ? -1 : 1))
    .forEach((d, i) => { at[d.id] = [(width * (i + 0.5)) / row.length, 10 + gap * (r + 0.5)]; }));
  svg.replaceChildren(...links.filter((l) => at[l.a] && at[l.b]).map((l) => node("line", {
    class: "link", x1: at[l.a][0], y1: at[l.a][1], x2: at[l.b][0], y2: at[l.b][1],
    "stroke-width": Math.min(6, 1 + Math.log2(1 + l.bw_GBps) / 2), "stroke-dasharray": l.assumed ? "5 4" : "none",
  }, node("title", {}, `${l.a} – ${l.b}: ${l.class}, ${l.bw_GBps} GB/s${l.assumed ? ", assumed" : ""}`))),
  ...Object.entries(at).flatMap(([id, [cx, cy]]) => [
    node("rect", { class: "box", x: cx - 42, y: cy - 14, width: 84, height: 28, rx: 6 }),
    node("text", { x: cx, y: cy + 4, "text-anchor": "middle" }, id.length > 12 ? id.slice(0, 11) + "…" : id),
  ]));
}

let directory = "";

async function files() {
  const parts = directory ? directory.split("/") : [];
  const to = (dir) => () => { directory = dir; files(); };
  $("where").replaceChildren(node("button", { onclick: to("") }, "mount"), ...parts.flatMap((part, i) =>
    [" / ", node("button", { onclick: to(parts.slice(0, i + 1).join("/")) }, part)]));
  const asked = directory;
  try {
    const got = await json("/v1/listing?dir=" + encodeURIComponent(directory));
    if (asked !== directory) return;
    const below = (name) => (directory ? directory + "/" : "") + name;
    table("files", ["NAME", "#SIZE", "TENSOR", "STATE", "KEY", "PATH"], got.entries.map((e) => [
      e.type === "dir" ? node("button", { onclick: to(below(e.name)) }, e.name + "/") : e.name,
      e.type === "dir" ? "" : size(e.size), [e.dtype, e.shape].filter(Boolean).join(" "), e.state, e.key, e.path,
    ]).concat(got.more ? [["… and more", "", "", "", "", ""]] : []));
  } catch (err) {
    table("files", ["NAME"], [[node("span", { class: "alarm" }, err.message)]]);
  }
}

async function keys() {
  const rows = [];
  const add = (published) => (k) => {
    rows.push([k.key, k.node || "this", k.device, k.hidden ? "?" : size(k.size), published ? "published" : k.state]);
    return rows.length < 500;
  };
  try {
    await lines("/v1/keys", add(false));
    await lines("/v1/keys?published=1", add(true));
  } catch (err) { // such as of a node that is away
    rows.push([err.message, "", "", "", ""]);
  }
  table("keys", ["KEY", "NODE", "DEVICE", "#SIZE", "STATE"], rows);
}

async function sample() {
  const [status, activity] = await Promise.all([json("/v1/status"), json("/v1/activity")]);
  $("mount").textContent = `${status.mount_point} · ${status.version}`;
  document.title = "hmcfs " + status.mount_point;
  const r = rates(status);
  devices(status, r.devices);
  if (r.seconds) {
    history_.push(r.paths);
    if (history_.length > shown) history_.shift();
  }
  chart();
  table("processes", ["#PID", "#UID", "COMMAND", "BY", "#READ", "#WRITTEN"], activity.processes
    .sort((a, b) => b.read_bytes + b.written_bytes - a.read_bytes - a.written_bytes)
    .map((p) => [p.pid, p.uid, (p.command || "–") + (p.ended ? " (ended)" : ""), p.session ? "session" : "mount", size(p.read_bytes), size(p.written_bytes)]));
  table("sessions", ["#PID", "#UID", "COMMAND", "SINCE"], activity.sessions.map((s) => [s.pid, s.uid, s.command || "–", time(s.begun)]));
  table("slow", ["OPERATION", "BY", "#TOOK", "AT"], activity.slow.reverse()
    .map((s) => [s.name, s.session ? "session of " + s.pid : "mount", (1000 * s.seconds).toFixed(0) + " ms", time(s.at)]));
  table("nodes", ["NODE", "STATE", "BY"], ((status.cluster || {}).nodes || []).map((n) => [
    n.name, n.connected ? "connected" : n.problem ? node("span", { title: n.problem }, "unreachable") : "idle", n.transport]));
  $("state").textContent = "live, " + new Date().toLocaleTimeString();
  $("state").className = "";
}

// repeat calls a function again and again while the page is visible, with a pause between two calls,
// and shows its failures.
async function repeat(what, pause) {
  for (;;) {
    try {
      if (!document.hidden) await what();
    } catch (err) {
      $("state").textContent = err.message;
      $("state").className = "alarm";
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

const seen = [];

function event(e) {
  seen.unshift([e.time.slice(11, 23), e.event, e.key, e.device, e.event === "dropped" ? e.dropped + " events" : size(e.size)]);
  seen.length = Math.min(seen.length, 200);
  table("events", ["TIME (UTC)", "EVENT", "KEY", "DEVICE", "#SIZE"], seen);
}

table("events", [], []);
repeat(sample, every);
repeat(files, 2 * every);
repeat(keys, 5 * every); // which asks other nodes
repeat(async () => topology(await json("/v1/topology")), 30000);
repeat(() => lines("/v1/events", event), every);
