const address = new URLSearchParams(location.search).get("gateway") ?? "http://127.0.0.1:8080";
const { connect } = await import(`${address}/client.js`);

const SHOWN_AFTERWARDS_MS = 3000;
const WHY = { match: "done", deleted: "canceled", expired: "expired", missed: "left while the connection was lost" };

const table = document.getElementById("orders");
const count = document.getElementById("count");
const state = document.getElementById("state");
const lines = new Map();

const gateway = connect(address);
const orders = gateway.subscribe("orders", { interval: "500ms", filter: "/state = 'open'" });
orders.addEventListener("state", ({ detail }) => {
  state.value = detail.state;
  document.body.className = ["live", "polling"].includes(detail.state) ? "" : "lost";
});

for await (const { added, changed, removed } of orders) {
  for (const row of added) lines.set(row.id, table.insertRow(0));
  for (const row of [...added, ...changed]) show(lines.get(row.id), row.value);
  for (const row of removed) leave(row);
  count.value = lines.size;
}

function show(line, { id, symbol, side, left }) {
  line.replaceChildren(...[id, symbol, side, left, ""].map(cell));
}

// An order that has left stays for a moment with the reason, so that nobody takes it for a glitch.
function leave({ id, reason }) {
  const line = lines.get(id);
  lines.delete(id);
  line.className = "gone";
  line.lastChild.textContent = WHY[reason] ?? reason;
  setTimeout(() => line.remove(), SHOWN_AFTERWARDS_MS);
}

function cell(text) {
  const place = document.createElement("td");
  place.textContent = text;
  return place;
}
