import perspective from "./node_modules/@perspective-dev/client/dist/cdn/perspective.js";

const address = new URLSearchParams(location.search).get("gateway") ?? "http://127.0.0.1:8080";
const { connect } = await import(`${address}/client.js`);
const { intoPerspective } = await import(`${address}/client/adapters/perspective.js`);

const state = document.getElementById("state");
const gateway = connect(address);
const prices = gateway.subscribe("prices", { interval: "500ms" });
prices.addEventListener("state", ({ detail }) => (state.value = detail.state));

const worker = await perspective.worker();
const columns = { symbol: "string", price: "float", size: "integer" };
const table = await worker.table(columns, { index: "symbol", name: "prices" });
intoPerspective(prices, table);

const viewer = document.getElementById("viewer");
await viewer.load(worker);
await viewer.restore({ table: "prices", plugin: "Datagrid", sort: [["price", "desc"]] });
