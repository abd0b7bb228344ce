const address = new URLSearchParams(location.search).get("gateway") ?? "http://127.0.0.1:8080";
const { connect } = await import(`${address}/client.js`);

const wall = document.getElementById("wall");
const state = document.getElementById("state");
const interval = document.getElementById("interval");
const tiles = new Map();

const gateway = connect(address);
const prices = gateway.subscribe("prices", { interval: interval.value, select: "[-/,+/symbol,+/price]" });
prices.addEventListener("state", ({ detail }) => {
  state.value = detail.state;
  document.body.className = ["live", "polling"].includes(detail.state) ? "" : "lost";
});
interval.addEventListener("change", () => prices.change({ interval: interval.value }));

for await (const { added, changed, removed } of prices) {
  for (const row of added) tiles.set(row.id, tile(row));
  for (const row of [...added, ...changed]) show(tiles.get(row.id), row);
  for (const row of removed) {
    tiles.get(row.id)?.remove();
    tiles.delete(row.id);
  }
}

function tile(row) {
  const place = wall.appendChild(document.createElement("article"));
  place.append(row.value.symbol, document.createElement("b"));
  return place;
}

function show(place, { value, previous }) {
  place.querySelector("b").textContent = value.price.toFixed(2);
  if (previous) place.className = value.price > previous.price ? "up" : "down";
}
