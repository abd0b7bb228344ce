/**
 * Names with dots as a tree: `prices.eu` stands under `prices`.
 *
 * Pure: it knows names and figures, and no element.
 *
 * @module
 */

/**
 * @typedef {object} Figures
 * @property {number} rate Messages a second; NaN before it is known.
 * @property {number} keys
 * @property {number | null} last_ms When the newest message was published.
 * @property {number | null} age_ms How long before the figures were read that was.
 */

/** @typedef {Figures & { topic: string }} Leaf */
/** @typedef {Figures & { branch: string, label: string, depth: number, size: number, isOpen: boolean }} BranchLine */
/** @typedef {{ leaf: Leaf, label: string, depth: number }} LeafLine */

/** A part of the tree: what begins with the same segments. */
class Node {
  /** @param {string} path With its last dot; empty for the root. */
  constructor(path) {
    this.path = path;
  }

  /** @type {Map<string, Node>} By segment. */
  nodes = new Map();
  /** @type {Leaf[]} */
  leaves = [];

  /** @returns {Leaf[]} */
  get all() {
    return [...this.leaves, ...[...this.nodes.values()].flatMap((node) => node.all)];
  }
}

/**
 * Return the lines of a tree, in the order of names.
 *
 * @param {Iterable<Leaf>} leaves
 * @param {(branch: string, depth: number) => boolean} isOpen Asked with the path of a branch, `prices.`.
 * @returns {(BranchLine | LeafLine)[]}
 */
export function treeOf(leaves, isOpen) {
  const root = new Node("");
  for (const leaf of leaves) {
    let node = root;
    for (const segment of leaf.topic.split(".").slice(0, -1)) {
      const held = node.nodes.get(segment) ?? new Node(`${node.path}${segment}.`);
      node.nodes.set(segment, held);
      node = held;
    }
    node.leaves.push(leaf);
  }
  return linesOf(root, 0, isOpen);
}

/**
 * @param {Node} node
 * @param {number} depth
 * @param {(branch: string, depth: number) => boolean} isOpen
 * @returns {(BranchLine | LeafLine)[]}
 */
function linesOf(node, depth, isOpen) {
  const labelOf = (/** @type {string} */ name) => name.slice(node.path.length);
  /** @type {[string, () => (BranchLine | LeafLine)[]][]} */
  const parts = node.leaves.map((leaf) => [leaf.topic, () => [{ leaf, label: labelOf(leaf.topic), depth }]]);
  for (const child of node.nodes.values()) {
    const all = child.all;
    // A branch of one topic is a line more and says nothing.
    if (all.length === 1) parts.push([all[0].topic, () => [{ leaf: all[0], label: labelOf(all[0].topic), depth }]]);
    else {
      const branch = soleBranchOf(child);
      const isShown = isOpen(branch.path, depth);
      const line = { branch: branch.path, label: labelOf(branch.path), depth, size: all.length, isOpen: isShown, ...summed(all) };
      parts.push([branch.path, () => [line, ...(isShown ? linesOf(branch, depth + 1, isOpen) : [])]]);
    }
  }
  return parts.sort(([one], [other]) => (one < other ? -1 : 1)).flatMap(([, lines]) => lines());
}

/**
 * Return the branch with which a chain of branches without anything beside them ends.
 *
 * @param {Node} node
 * @returns {Node}
 */
function soleBranchOf(node) {
  return node.leaves.length === 0 && node.nodes.size === 1 ? soleBranchOf(/** @type {Node} */ (node.nodes.values().next().value)) : node;
}

/**
 * @param {Leaf[]} leaves
 * @returns {Figures}
 */
function summed(leaves) {
  const rates = leaves.map(({ rate }) => rate).filter((rate) => !Number.isNaN(rate));
  const [newest] = leaves.filter(({ last_ms: at }) => at !== null).sort((one, other) => Number(other.last_ms) - Number(one.last_ms));
  return {
    rate: rates.length > 0 ? rates.reduce((sum, rate) => sum + rate, 0) : NaN,
    keys: leaves.reduce((sum, { keys }) => sum + (keys ?? 0), 0), last_ms: newest?.last_ms ?? null, age_ms: newest?.age_ms ?? null,
  };
}
