/**
 * A subscription as a program: curl, JavaScript, Python.
 *
 * @module
 */

/**
 * @typedef {object} Asked
 * @property {string} topic
 * @property {string} [options]
 * @property {string} [filter]
 * @property {string} [order_by]
 * @property {string} [command]
 */

/**
 * Return the command line of a subscription.
 *
 * @param {string} origin
 * @param {Asked} asked
 * @param {boolean} withToken
 */
export function asCurl(origin, { topic, ...rest }, withToken) {
  const given = Object.entries(rest).filter(([, text]) => text);
  const parameters = given.map(([name, text]) => `--data-urlencode ${quoted(`${name}=${text}`)}`);
  const token = withToken ? ['-H "Authorization: Bearer $TIDEGATE_TOKEN"'] : [];
  return [`curl -N -G ${quoted(`${origin}/v1/topics/${encodeURIComponent(topic)}/subscribe`)}`, ...token, ...parameters].join(" \\\n  ");
}

/**
 * Return a module for a page or for Node.
 *
 * @param {string} origin
 * @param {Asked} asked
 * @param {boolean} withToken
 */
export function asJavaScript(origin, { topic, options, filter, order_by: orderBy, command }, withToken) {
  const given = Object.entries({ options, filter, orderBy, command }).filter(([, text]) => text);
  const wish = given.map(([name, text]) => `${name}: ${JSON.stringify(text)}`).join(", ");
  const more = withToken ? ", { token: process.env.TIDEGATE_TOKEN }" : "";
  return `import { connect } from "@tidegate/client"; // in a page: "/client.js"

const gateway = connect(${JSON.stringify(origin)}${more});
const rows = gateway.subscribe(${JSON.stringify(topic)}, { ${wish} });
for await (const { added, changed, removed } of rows) {
  console.log(added, changed, removed);
}`;
}

/**
 * Return a program in Python.
 *
 * @param {string} origin
 * @param {Asked} asked
 * @param {boolean} withToken
 */
export function asPython(origin, { topic, options, filter, order_by: orderBy, command }, withToken) {
  const given = Object.entries({ options, filter, order_by: orderBy, command }).filter(([, text]) => text);
  // JSON's escapes are Python's, but for characters beyond 16 bits, which JSON leaves as they are.
  const wish = given.map(([name, text]) => `    ${name}=${JSON.stringify(text)},\n`).join("");
  const note = withToken ? "# The token is that of TIDEGATE_TOKEN.\n" : "";
  return `from tidegate import Gateway

${note}with Gateway(${JSON.stringify(origin)}) as gateway:
    events = gateway.subscribe(
        ${JSON.stringify(topic)},
${wish.replaceAll(/^/gm, "    ").trimEnd()}
    )
    for event in events:
        print(event.name, event.text)`;
}

/**
 * Return a text as one word of a shell.
 *
 * @param {string} text
 */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
