// The tree of what is alive at a moment, by the rules of profiler/report/alive_tree.h, drawn as a
// flame graph.

const ROW = 20;  // height of a place, in CSS pixels

function withoutFolders(path) { return path.slice(path.lastIndexOf('/') + 1); }

function placeText([name, file, line]) {
  if (file === '') return name;
  return `${name}  ${withoutFolders(file)}${line === 0 ? '' : ':' + line}`;
}

// Returns the places from the root to the end of a path.
function pathTo(names, end) {
  const path = [];
  for (let at = end; at !== 0; at = names.nodes[at - 1][0]) {
    path.push(names.places[names.nodes[at - 1][1]]);
  }
  return path.reverse();
}

function pathOf(names, group, { by, from }) {
  const [, , category, stack, module] = group;
  const path = pathTo(names, by === 'module' ? module : stack);
  if (from === 'bottom') path.reverse();
  if (by === 'category') path.unshift([facts.categoryNames[category], '', 0]);
  return path;
}

function treeNode(place, parent) {
  return { place, parent, bytes: 0, count: 0, base: 0, children: new Map(), of: new Map() };
}

class AliveTree {
  // `unchanged` are the files whose lines are the same in both runs.
  constructor(compares, unchanged) {
    this.compares = compares;
    this.unchanged = new Set(unchanged);
    this.root = treeNode(['all', '', 0], null);
  }
  // Adds what is alive after a change. When two runs are compared, a place is the same whatever its
  // folder, and in a file that has changed, whatever its line.
  add(lane, change, options, isBaseline) {
    const sums = new Map();
    for (const block of lane.aliveAfter(change)) {
      if (!shows(lane.categoryOf(block))) continue;
      const group = lane.group[lane.kind[block]];
      const sum = sums.get(group) || [0, 0];
      sums.set(group, [sum[0] + lane.size(block), sum[1] + 1]);
    }
    for (const [group, [bytes, count]] of sums) {
      const path = pathOf(lane.names, lane.names.groups[group], options);
      this.addPath(path, bytes, count, isBaseline, lane.names.groups[group][2]);
    }
  }
  addPath(path, bytes, count, isBaseline, category) {
    let node = this.root;
    for (let i = -1; i < path.length; ++i) {
      if (i >= 0) node = this.child(node, path[i]);
      node[isBaseline ? 'base' : 'bytes'] += bytes;
      if (!isBaseline) node.count += count;
      node.of.set(category, (node.of.get(category) || 0) + bytes);
    }
  }
  child(node, place) {
    const [name, file, line] = place;
    const base = withoutFolders(file);
    const fixed = this.unchanged.has(base) ? line : 0;
    const key = this.compares ? [name, base, fixed] : [name, file, line];
    const text = JSON.stringify(key);
    if (!node.children.has(text)) node.children.set(text, treeNode(place, node));
    return node.children.get(text);
  }
}

function widthOf(node) { return Math.max(node.bytes, node.base); }

function childrenOf(node) {
  return [...node.children.values()].sort((a, b) => widthOf(b) - widthOf(a));
}

// Draws a tree, or what lies below one of its places. `boxes` is what was drawn last.
class Flame {
  constructor(canvas, tree) {
    this.canvas = canvas;
    this.tree = tree;
    this.boxes = [];
    this.path = [tree.root];  // to the place that fills the width
  }

  draw(search) {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const outer = this.path.slice(0, -1);
    this.boxes = outer.map((node, i) => ({ node, x: 0, y: i * ROW, width }));
    this.place(this.path.at(-1), 0, outer.length * ROW, width);
    const height = this.boxes.reduce((most, box) => Math.max(most, box.y + ROW), 0);
    this.canvas.style.height = height + 'px';
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    for (const box of this.boxes) this.drawBox(context, box, search);
  }

  // Children lie side by side below their place; with two runs their sum can be wider than the
  // place.
  place(node, x, y, width) {
    const outermost = node;
    let calls = 0;  // that a chain of calls has besides the one that is drawn
    while (node !== this.tree.root && isChain(node)) node = childrenOf(node)[0], ++calls;
    this.boxes.push({ node, x, y, width, name: namedIn(outermost, node), calls });
    const children = childrenOf(node);
    const sum = children.reduce((bytes, child) => bytes + widthOf(child), 0);
    const scale = width / Math.max(widthOf(node), sum, 1);
    for (const child of children) {
      const wide = widthOf(child) * scale;
      if (wide < 1) break;
      this.place(child, x, y + ROW, wide);
      x += wide;
    }
  }

  drawBox(context, { node, x, y, width, name = node, calls = 0 }, search) {
    const { compares } = this.tree;
    const text = placeText(name.place) + (calls > 0 ? `  (+${calls})` : '');
    const isFound = search !== '' && text.toLowerCase().includes(search.toLowerCase());
    context.globalAlpha = search !== '' && !isFound ? 0.35 : 1;
    context.fillStyle = compares ? color('grid') : categoryColor(node);
    context.fillRect(x, y, Math.max(0.5, width - 1), ROW - 1);
    if (compares && node.bytes !== node.base) {
      const part = (width * Math.abs(node.bytes - node.base)) / Math.max(1, widthOf(node));
      context.fillStyle = color(node.bytes > node.base ? 'more' : 'less');
      context.fillRect(x + width - part, y, Math.max(0.5, part - 1), ROW - 1);
    }
    if (width > 24) {
      context.fillStyle = compares ? color('text') : '#14161a';
      context.fillText(fitted(context, text, width - 8), x + 4, y + ROW / 2);
    }
    context.globalAlpha = 1;
  }

  nodeAt(x, y) {
    const isIn = (box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + ROW;
    return this.boxes.findLast(isIn)?.node || null;
  }

  // Makes a place fill the width; if it already does, makes the one above fill it.
  enter(node) {
    const isFilling = node === this.path.at(-1) && node.parent !== null;
    this.path = [isFilling ? node.parent : node];
    while (this.path[0].parent !== null) this.path.unshift(this.path[0].parent);
  }
}

// True for a call whose bytes are all those of its only further call.
function isChain(node) {
  const children = childrenOf(node);
  return children.length === 1 && children[0].bytes === node.bytes && children[0].base === node.base;
}

// Returns the call that names a chain: the last one in the program's own code.
function namedIn(first, last) {
  let named = null;
  for (let at = first; ; at = childrenOf(at)[0]) {
    const [, file] = at.place;
    if (file !== '' && !file.includes('/torch/')) named = at;
    if (at === last) return named || last;
  }
}

// Returns the colour of the category that most of a place's bytes have.
function categoryColor(node) {
  let most = null;
  for (const [category, bytes] of node.of) {
    if (most === null || bytes > node.of.get(most)) most = category;
  }
  return most === null ? color('grid') : cssColor(most);
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = Math.floor((text.length * width) / context.measureText(text).width);
  while (length > 0 && context.measureText(text.slice(0, length) + '…').width > width) --length;
  return length > 0 ? text.slice(0, length) + '…' : '';
}
