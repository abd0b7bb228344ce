const parameters = new URLSearchParams(location.search);
const address = parameters.get("gateway") ?? "http://127.0.0.1:8080";
const { connect } = await import(`${address}/client.js`);

const head = document.getElementById("head");
const rows = document.getElementById("rows");
const state = document.getElementById("state");
const lines = new Map();
const columns = [];

const records = connect(address).subscribe(parameters.get("topic"), { interval: "500ms" });
records.addEventListener("state", ({ detail }) => {
  state.value = detail.state;
  document.body.className = ["live", "polling"].includes(detail.state) ? "" : "lost";
});

for await (const { added, changed, removed } of records) {
  for (const row of added) lines.set(row.id, rows.insertRow());
  for (const row of [...added, ...changed]) show(lines.get(row.id), row.value);
  for (const row of removed) {
    lines.get(row.id)?.remove();
    lines.delete(row.id);
  }
}

function show(line, record) {
  for (const name of Object.keys(record)) {
    if (columns.includes(name)) continue;
    columns.push(name);
    head.append(cell("th", name));
  }
  line.replaceChildren(...columns.map((name) => cell("td", record[name] ?? "")));
}

function cell(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}
