// The HTTP API as a page: every operation of /openapi.json, with nothing from elsewhere.

const page = document.getElementById("reference");
const state = document.getElementById("state");

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function heading(method, path) {
  const made = element("h3");
  made.append(element("span", method.toUpperCase(), "method"), ` ${path}`);
  return made;
}

function parameters(operation) {
  const list = element("dl");
  for (const parameter of operation.parameters ?? []) {
    list.append(element("dt", parameter.name));
    list.append(element("dd", `${parameter.description ?? ""} (${parameter.in})`));
  }
  const bodies = Object.keys(operation.requestBody?.content ?? {});
  if (bodies.length) list.append(element("dt", "body"), element("dd", bodies.join(", ")));
  return list;
}

function section(method, path, operation) {
  const made = element("section", "", "operation");
  made.append(heading(method, path), element("p", operation.summary));
  if (operation.description) made.append(element("p", operation.description));
  const list = parameters(operation);
  if (list.children.length) made.append(list);
  return made;
}

function show(document_) {
  const groups = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const group = operation.tags?.[0] ?? "other";
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(section(method, path, operation));
    }
  }
  for (const [group, sections] of groups) page.append(element("h2", group), ...sections);
  state.remove();
}

try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  show(await answer.json());
} catch (error) {
  state.textContent = `openapi.json cannot be read: ${error.message}`;
}
