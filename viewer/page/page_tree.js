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

function treeNode(place) {
  return { place, bytes: 0, count: 0, base: 0, baseCount: 0, children: new Map() };
}

class AliveTree {
  constructor(compares) {
    this.compares = compares;
    this.root = treeNode(['all', '', 0]);
  }
  // Adds what is alive after a change. When two runs are compared, a place is the same whatever its
  // folder and line.
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
      this.addPath(path, bytes, count, isBaseline);
    }
  }
  addPath(path, bytes, count, isBaseline) {
    let node = this.root;
    for (let i = -1; i < path.length; ++i) {
      if (i >= 0) node = this.child(node, path[i]);
      node[isBaseline ? 'base' : 'bytes'] += bytes;
      node[isBaseline ? 'baseCount' : 'count'] += count;
    }
  }
  child(node, place) {
    const [name, file, line] = place;
    const key = this.compares ? [name, withoutFolders(file)] : [name, file, line];
    const text = JSON.stringify(key);
    if (!node.children.has(text)) node.children.set(text, treeNode(place));
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
    this.boxes.push({ node, x, y, width });
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

  drawBox(context, { node, x, y, width }, search) {
    const { compares } = this.tree;
    const text = placeText(node.place);
    const isFound = search !== '' && text.toLowerCase().includes(search.toLowerCase());
    context.globalAlpha = search !== '' && !isFound ? 0.35 : 1;
    context.fillStyle = compares ? differenceColor(node) : shadeOf(text);
    context.fillRect(x, y, Math.max(0.5, width - 1), ROW - 1);
    if (width > 24) {
      context.fillStyle = textColor(node, compares);
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
    const at = this.path.indexOf(node);
    const isFilling = at > 0 && at === this.path.length - 1;
    this.path = at < 0 ? pathOfNode(this.tree.root, node)
                       : this.path.slice(0, isFilling ? at : at + 1);
  }
}

function pathOfNode(root, wanted) {
  if (root === wanted) return [root];
  for (const child of root.children.values()) {
    const path = pathOfNode(child, wanted);
    if (path) return [root, ...path];
  }
  return null;
}

function differenceColor(node) {
  if (node.bytes > node.base) return color('more');
  return node.bytes < node.base ? color('less') : color('grid');
}

function textColor(node, compares) {
  if (!compares) return '#14161a';  // the shades are light in every theme
  return node.bytes === node.base ? color('text') : color('card');
}

// Returns a colour that is always the same for the same text.
function shadeOf(text) {
  let hash = 0;
  for (const c of text) hash = (Math.imul(hash, 31) + c.codePointAt(0)) >>> 0;
  return `hsl(${200 + (hash % 60)} ${45 + (hash % 7) * 4}% ${68 + (hash % 5) * 3}%)`;
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = Math.floor((text.length * width) / context.measureText(text).width);
  while (length > 0 && context.measureText(text.slice(0, length) + '…').width > width) --length;
  return length > 0 ? text.slice(0, length) + '…' : '';
}
