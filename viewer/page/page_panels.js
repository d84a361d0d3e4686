// The panels below the lanes: what is alive as a table and as a flame graph, what changed against
// the baseline, and the selected block.

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;  // never as HTML: a recording's names are text
  return made;
}

function button(text, title, act) {
  const made = element('button', '', text);
  made.type = 'button';
  made.title = title;
  made.addEventListener('click', act);
  return made;
}

function chooser(title, words, chosen, act, shown = {}) {
  const made = element('select');
  made.title = title;
  made.setAttribute('aria-label', title);
  for (const word of words) {
    made.append(new Option(shown[word] || word, word, false, word === chosen));
  }
  made.addEventListener('change', () => act(made.value));
  return made;
}

// Returns the change of a lane that the panels show: at the cursor, or at the lane's peak.
function momentOf(lane) {
  if (state.cursor === null) return lane.peak.change;
  if (state.cursor.lane === lane) return state.cursor.change;
  const changes = warpOf(lane).changes(lane, state.cursor.x, state.cursor.x);
  return changes === null ? BEFORE_ALL : Math.min(changes[0], lane.changes) - 1;
}

function focusedLane() { return lanes[state.focus]; }
function baselineLane() { return lanes[facts.baseline]; }
function comparesTree() { return state.difference && focusedLane() !== baselineLane(); }

// --- the table -----------------------------------------------------------------------------------

const MOST_ROWS = 500;
const COLUMNS = [
  { name: 'size', value: (row) => row.bytes, text: (row) => bytesText(row.bytes) },
  { name: 'blocks', value: (row) => row.count, text: (row) => String(row.count) },
  { name: 'name', value: (row) => row.name, text: (row) => row.name },
  { name: 'category', value: (row) => wordsOf(row.category), text: (row) => wordsOf(row.category) },
  { name: 'born in', value: (row) => row.step, text: (row) => bornText(row.step) },
];

function bornText(step) { return step < 0 ? 'before step 0' : 'step ' + step; }

// Returns the blocks that are alive after a change, one row for all blocks of a name and category.
function aliveRows(lane, change) {
  const rows = new Map();
  for (const block of lane.aliveAfter(change)) {
    const category = lane.categoryOf(block);
    if (!shows(category)) continue;
    const name = lane.nameOf(block);
    const key = category + name;
    const bytes = lane.size(block);
    const row = rows.get(key) || { name, category, bytes: 0, count: 0, most: -1 };
    row.bytes += bytes;
    row.count += 1;
    if (bytes > row.most) row.most = bytes, row.block = block;
    rows.set(key, row);
  }
  const all = [...rows.values()];
  for (const row of all) row.step = lane.stretchOf(lane.born[row.block])[0];
  return all;
}

function isSearched(name) { return name.toLowerCase().includes(state.search.toLowerCase()); }

function sorted(rows) {
  const { value } = COLUMNS[state.sort.column];
  const sign = state.sort.isRising ? 1 : -1;
  const order = (a, b) => (typeof a === 'string' ? a.localeCompare(b, 'en', { numeric: true }) : a - b);
  return rows.sort((a, b) => sign * order(value(a), value(b)) || b.bytes - a.bytes);
}

function drawTable(lane, change) {
  const rows = sorted(aliveRows(lane, change).filter((row) => isSearched(row.name)));
  const table = element('table');
  const head = table.createTHead().insertRow();
  COLUMNS.forEach((column, i) => {
    const cell = element('th');
    const mark = state.sort.column === i ? (state.sort.isRising ? ' ▲' : ' ▼') : '';
    cell.append(button(column.name + mark, 'sort by ' + column.name, () => sortBy(i)));
    head.append(cell);
  });
  const shown = rows.slice(0, MOST_ROWS).map((row) => tableRow(lane, row));
  table.createTBody().append(...shown);
  panel.replaceChildren(table);
  if (rows.length > MOST_ROWS) {
    panel.append(element('p', 'muted', `${rows.length - MOST_ROWS} more rows: search for them`));
  }
  if (rows.length === 0) panel.append(element('p', 'muted', 'nothing is alive here'));
}

function tableRow(lane, row) {
  const made = element('tr');
  made.tabIndex = 0;
  made.title = 'select the largest of these blocks';
  for (const column of COLUMNS) made.append(element('td', column.name, column.text(row)));
  made.children[3].prepend(swatch(row.category));
  const block = state.selected?.lane === lane ? state.selected.block : null;
  const isSelected = block !== null && lane.nameOf(block) === row.name &&
                     lane.categoryOf(block) === row.category;
  made.classList.toggle('selected', isSelected);
  const act = () => select(lane, row.block);
  made.addEventListener('click', act);
  made.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') act();
  });
  return made;
}

function sortBy(column) {
  const isRising = state.sort.column === column ? !state.sort.isRising : column > 1;
  state.sort = { column, isRising };
  drawPanel();
}

// --- the flame graph -----------------------------------------------------------------------------

function treeOf(lane, change) {
  const tree = new AliveTree(comparesTree(), lane.facts.unchanged_files);
  tree.add(lane, change, state.tree, false);
  if (comparesTree()) tree.add(baselineLane(), momentOf(baselineLane()), state.tree, true);
  return tree;
}

function drawFlame(lane, change) {
  const canvas = element('canvas', 'flame');
  const said = element('p', 'said', 'point at a frame to read it; click it to zoom in');
  panel.replaceChildren(said, canvas);
  const tree = treeOf(lane, change);
  flame = new Flame(canvas, tree);
  flame.draw(state.search);
  canvas.addEventListener('mousemove', (event) => {
    const node = flame.nodeAt(event.offsetX, event.offsetY);
    if (node) said.textContent = nodeText(node, tree);
  });
  canvas.addEventListener('click', (event) => {
    const node = flame.nodeAt(event.offsetX, event.offsetY);
    if (node) flame.enter(node);
    flame.draw(state.search);
  });
}

function nodeText(node, tree) {
  const share = (100 * node.bytes) / Math.max(1, tree.root.bytes);
  const text = `${placeText(node.place)}: ${bytesText(node.bytes)} (${share.toFixed(1)} %), ` +
               `${node.count} blocks`;
  if (!tree.compares) return text;
  return `${text}; ${changeText(node.base, node.bytes)} than in ${baselineLane().facts.name}`;
}

// --- what changed --------------------------------------------------------------------------------

function drawChanges(lane) {
  const found = lane.facts.comparison;
  const base = baselineLane().facts.name;
  panel.replaceChildren();
  if (found === null) {
    const isBase = lane === baselineLane();
    panel.append(element('p', 'muted', isBase
      ? 'this is the baseline: choose another run to see what changed'
      : `it is not compared with ${base}, which shows another kind of memory`));
    return;
  }
  panel.append(element('p', '', `at the peaks: ${bytesText(found.in_both_bytes)} in both, ` +
    `${bytesText(found.only_a_bytes)} only in ${base}, ` +
    `${bytesText(found.only_b_bytes)} only in ${lane.facts.name}`));
  const table = element('table');
  const names = ['change', 'place', 'category', base, lane.facts.name];
  table.createTHead().insertRow().append(...names.map((name) => element('th', '', name)));
  const rows = found.rows.filter((row) => isSearched(row.place));
  table.createTBody().append(...rows.map(changeRow));
  panel.append(table);
}

function changeRow(row) {
  const made = element('tr');
  const category = facts.categoryIds.get(row.category);
  const sign = row.change_bytes > 0 ? '+' : '';
  made.append(
    element('td', sign ? 'size more' : 'size less', sign + bytesText(row.change_bytes)),
    element('td', 'name', row.place + (row.layers > 1 ? ` (${row.layers} layers)` : '')),
    element('td', 'category', wordsOf(category)),
    element('td', 'size', `${row.a_blocks} blocks, ${bytesText(row.a_bytes)}`),
    element('td', 'size', `${row.b_blocks} blocks, ${bytesText(row.b_bytes)}`));
  made.children[2].prepend(swatch(category));
  return made;
}

// --- the selected block --------------------------------------------------------------------------

function stackLines(lane, block) {
  const path = pathTo(lane.names, lane.groupOf(block)[3]);
  return path.map(placeText).reverse();
}

function blockLines(lane, block) {
  const [, action] = lane.groupOf(block);
  const died = lane.died[block];
  const asked = lane.asked[lane.kind[block]];
  const size = lane.size(block);
  const where = lane.names.texts[action];
  return [
    ['name', lane.nameOf(block)],
    ['size', `${bytesText(size)} (${size} bytes${asked === size ? '' : `, ${asked} asked for`})`],
    ['category', wordsOf(lane.categoryOf(block))],
    ['born', lane.momentText(lane.born[block]) + (where === '' ? '' : ', ' + where)],
    ['freed', died === lane.changes ? 'not in this recording' : lane.momentText(died)],
    ['run', lane.facts.name],
  ];
}

function drawBlock() {
  const box = byId('block');
  if (state.selected === null) {
    const hint = 'click a block in a plot, or a row of the table, to see what it is';
    box.replaceChildren(element('h3', '', 'Block'), element('p', 'muted', hint));
    return;
  }
  const { lane, block } = state.selected;
  const list = element('dl');
  const lines = blockLines(lane, block);
  for (const [name, text] of lines) list.append(element('dt', '', name), element('dd', '', text));
  const stack = stackLines(lane, block);
  const text = lines.map((line) => line.join(': ')).concat(stack).join('\n');
  const copy = button('copy', 'copy all of this as text', () => copyText(text));
  box.replaceChildren(element('h3', '', 'Block '), list, element('h4', '', 'stack, innermost first'),
                      element('pre', 'stack', stack.join('\n')));
  box.firstChild.append(copy);
}

// Some browsers close navigator.clipboard to pages from disk; this way stays open.
function copyText(text) {
  const area = element('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}
