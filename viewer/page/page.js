// The page itself: its state, its elements, and what keys and pointer do. Everything that is drawn
// follows from `state`.

const facts = JSON.parse(document.getElementById('facts').textContent);
facts.categoryNames = [];  // by id
facts.categoryIds = new Map();
for (const category of facts.categories) {
  facts.categoryNames[category.id] = category.name;
  facts.categoryIds.set(category.word, category.id);
}
const lanes = [];
const plots = [];
let panel = null;
let flame = null;

const state = {
  alignment: facts.alignment,
  view: { begin: 0, end: 1 },
  focus: facts.lanes.length > 1 ? Number(facts.baseline === 0) : 0,
  cursor: null,    // { x, lane, change }; null: panels show peaks
  hover: null,     // x
  selected: null,  // a Selected
  shown: null,     // a set of categories; null: all
  heights: 'same height',
  order: facts.order,
  folded: new Set(),  // numbers of lanes that show only their name and peak
  magnified: 1,  // zoom of the height; 1: the whole height fits
  panel: facts.lanes.length > 1 ? 'what changed' : 'table',
  tree: { by: 'stack', from: 'top' },
  difference: facts.lanes.length > 1,
  sort: { column: 0, isRising: false },
  search: '',
};

function shows(category) { return state.shown === null || state.shown.has(category); }
function wordsOf(category) { return facts.categoryNames[category]; }
function warpOf(lane) { return lane.warps[state.alignment]; }
function cssColor(category) {
  return `rgb(${facts.categories.find((it) => it.id === category).color.join(' ')})`;
}
function swatch(category) {
  const made = element('i');
  made.style.background = cssColor(category);
  return made;
}
function byId(id) { return document.getElementById(id); }

// --- the view ------------------------------------------------------------------------------------

function extent() {
  const begin = Math.min(...lanes.map((lane) => warpOf(lane).begin()));
  const end = Math.max(...lanes.map((lane) => warpOf(lane).end()));
  return { begin, end: end > begin ? end : begin + 1 };
}

function setView(begin, end) {
  const all = extent();
  const most = all.end - all.begin;
  const length = Math.min(most, Math.max(most * 1e-9, end - begin));
  begin = Math.min(Math.max(all.begin, begin), all.end - length);
  state.view = { begin, end: begin + length };
  draw();
}

function zoomAt(x, factor) {
  const { begin, end } = state.view;
  setView(x - (x - begin) * factor, x + (end - x) * factor);
}

function fit() {
  const { begin, end } = extent();
  state.magnified = 1;
  setView(begin, end);
}

function align(alignment) {
  state.alignment = alignment;
  state.cursor = state.hover = null;
  fit();
  drawPanel();
}

// Returns the bytes at the upper edge of a lane: device memory and host memory do not share it.
function topOf(lane) {
  const like = state.heights === 'own height'
    ? [lane] : lanes.filter((other) => other.facts.space === lane.facts.space);
  const most = (other) =>
    Math.max(other.peak.bytes, state.shown === null ? other.facts.reserved_peak_bytes : 0);
  return (1.05 * Math.max(1, ...like.map(most))) / state.magnified;
}

function isolate(category) {
  const isAlone = state.shown !== null && state.shown.size === 1 && state.shown.has(category);
  state.shown = isAlone ? null : new Set([category]);
  for (const lane of lanes) lane.show(state.shown);
  orderLanes();
  drawLegend();
  drawAll();
}

const ORDERS = {
  opened: null,
  peak: (a, b) => b.peak.bytes - a.peak.bytes,
  name: (a, b) => a.facts.name.localeCompare(b.facts.name, undefined, { numeric: true }),
};

// Puts the lanes in the chosen order. Each keeps its number.
function orderLanes() {
  const numbers = lanes.map((lane, i) => i);
  if (ORDERS[state.order]) numbers.sort((a, b) => ORDERS[state.order](lanes[a], lanes[b]));
  document.querySelector('main').append(...numbers.map((i) => plots[i].section));
  draw();
}

function fold(numbers, isFolded) {
  for (const i of numbers) {
    state.folded[isFolded ? 'add' : 'delete'](i);
    plots[i].section.classList.toggle('folded', isFolded);
  }
  draw();
}

function select(lane, block) {
  state.selected = new Selected(lane, block);
  state.focus = lanes.indexOf(lane);
  drawAll();
}

function focusOn(index) {
  state.focus = (index + lanes.length) % lanes.length;
  plots[state.focus].section.scrollIntoView({ block: 'nearest' });
  drawAll();
}

// --- drawing -------------------------------------------------------------------------------------

let isDue = false;

function drawAll() {
  draw();
  drawPanel();
  drawBlock();
}

// Draws in the browser's next frame, once, however often it is called before.
function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  isDue = false;
  const began = performance.now();
  for (const plot of plots) {
    if (isVisible(plot.canvas)) plot.draw(warpOf(plot.lane), topOf(plot.lane));
  }
  page.frames.push(performance.now() - began);
  if (page.frames.length > 1000) page.frames.shift();
}

function isVisible(canvas) {
  const box = canvas.getBoundingClientRect();
  return box.height > 0 && box.bottom > 0 && box.top < window.innerHeight;
}

// Says the peak of what is shown: of all categories, or of the isolated one.
function drawHeadline(lane, line, index) {
  const { peak } = lane;
  const what = state.shown === null ? `peak of ${lane.facts.space} memory`
                                    : `peak of ${wordsOf([...state.shown][0])}`;
  line.replaceChildren(what + ': ', element('b', '', lane.facts.bound + bytesText(peak.bytes)),
                       ` (${peak.bytes} bytes), ` +
                       (state.shown === null ? lane.facts.peak.place : lane.momentText(peak.change)));
  const base = baselineLane();
  if (lane !== base && lane.facts.space === base.facts.space) {
    const growth = peak.bytes - base.peak.bytes;
    const kind = growth > 0 ? 'more' : growth < 0 ? 'less' : '';
    line.append('; ', element('span', kind, changeText(base.peak.bytes, peak.bytes)),
                ' against ' + base.facts.name);
  }
  line.parentElement.classList.toggle('focused', index === state.focus);
}

function drawLegend() {
  const legend = byId('legend');
  legend.replaceChildren();
  for (const { id } of [...facts.categories].reverse()) {
    if (!lanes.some((lane) => lane.category.includes(id))) continue;
    const name = wordsOf(id);
    const made = button(name, `show only ${name}, or all again`, () => isolate(id));
    made.prepend(swatch(id));
    made.setAttribute('aria-pressed', String(state.shown !== null && state.shown.has(id)));
    made.classList.toggle('off', !shows(id));
    legend.append(made);
  }
  if (lanes.some((lane) => lane.reserved.length > 0)) {
    legend.append(element('span', 'muted', '- - reserved by PyTorch'));
  }
}

function drawPanel() {
  plots.forEach((plot, i) => drawHeadline(plot.lane, plot.headline, i));
  const lane = focusedLane();
  const change = momentOf(lane);
  const bytes = lane.totalAfter(change);
  const at = state.cursor === null ? 'at its peak' : 'at the cursor';
  byId('moment').textContent =
    `${lane.facts.name} ${at}: ${lane.facts.bound}${bytesText(bytes)}, ${lane.momentText(change)}`;
  if (state.panel === 'table') drawTable(lane, change);
  if (state.panel === 'flame graph') drawFlame(lane, change);
  if (state.panel === 'what changed') drawChanges(lane);
  byId('tree').hidden = state.panel !== 'flame graph';
  for (const tab of document.querySelectorAll('#tabs button')) {
    tab.setAttribute('aria-pressed', String(tab.textContent === state.panel));
  }
}

function showPanel(name) {
  state.panel = name;
  drawPanel();
}

// --- the pointer ---------------------------------------------------------------------------------

function tooltipText(plot, event) {
  const moment = plot.momentAt(event.offsetX);
  if (!moment) return [];
  const { lane } = plot;
  const bytes = lane.bytesAfter(moment.change);
  const lines = [`${lane.facts.bound}${bytesText(moment.bytes)}, ${lane.momentText(moment.change)}`];
  for (const { id } of [...facts.categories].reverse()) {
    if (bytes[id] > 0 && shows(id)) lines.push(`${bytesText(bytes[id])}  ${wordsOf(id)}`);
  }
  const block = plot.blockAt(event.offsetX, event.offsetY);
  if (block !== null) lines.push(`under the pointer: ${lane.nameOf(block)}, ` +
                                 bytesText(lane.size(block)));
  return lines;
}

function showTooltip(lines, event) {
  const tooltip = byId('tooltip');
  tooltip.hidden = lines.length === 0;
  tooltip.replaceChildren(...lines.map((text, i) => element(i === 0 ? 'b' : 'div', '', text)));
  const box = tooltip.getBoundingClientRect();
  tooltip.style.left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8) + 'px';
  tooltip.style.top = Math.min(event.clientY + 14, window.innerHeight - box.height - 8) + 'px';
}

function listen(plot) {
  const { canvas } = plot;
  let pressed = null;  // { x, view }
  canvas.addEventListener('wheel', (event) => {
    if (event.ctrlKey) return;
    event.preventDefault();
    const notches = (event.deltaY || event.deltaX) / 100;
    if (event.shiftKey) {
      state.magnified = Math.min(1000, Math.max(1, state.magnified * 1.25 ** -notches));
      draw();
    } else {
      zoomAt(plot.xAt(event.offsetX), 1.25 ** notches);
    }
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    pressed = { x: event.offsetX, view: state.view, isDragged: false };
  });
  canvas.addEventListener('pointermove', (event) => {
    state.hover = plot.xAt(event.offsetX);
    if (pressed && Math.abs(event.offsetX - pressed.x) > 3) pressed.isDragged = true;
    if (pressed && pressed.isDragged) {
      const { begin, end } = pressed.view;
      const moved = ((pressed.x - event.offsetX) / plot.width) * (end - begin);
      setView(begin + moved, end + moved);
    }
    showTooltip(pressed && pressed.isDragged ? [] : tooltipText(plot, event), event);
    draw();
  });
  canvas.addEventListener('pointerup', (event) => {
    if (pressed && !pressed.isDragged) click(plot, event);
    pressed = null;
  });
  canvas.addEventListener('pointerleave', () => {
    state.hover = null;
    byId('tooltip').hidden = true;
    draw();
  });
  canvas.addEventListener('dblclick', fit);
}

// Puts the cursor on the highest moment of the column, so that the panels say what the tooltip
// said, and selects the block under the pointer.
function click(plot, event) {
  const moment = plot.momentAt(event.offsetX);
  if (!moment) return;
  state.focus = lanes.indexOf(plot.lane);
  state.cursor = { x: plot.xAt(event.offsetX), lane: plot.lane, change: moment.change };
  const block = plot.blockAt(event.offsetX, event.offsetY);
  if (block !== null) select(plot.lane, block);
  else drawAll();
}

// --- keys ----------------------------------------------------------------------------------------

const KEY_NAMES = { ArrowLeft: '←', ArrowRight: '→' };
const KEYS = [
  { key: 'f', does: 'show the whole run', act: fit },
  { key: 'Tab', does: 'next lane', act: () => focusOn(state.focus + 1) },
  { key: '+', does: 'zoom in', act: () => zoomAt(middle(), 0.8) },
  { key: '-', does: 'zoom out', act: () => zoomAt(middle(), 1.25) },
  { key: 'ArrowLeft', does: 'go left', act: () => pan(-0.1) },
  { key: 'ArrowRight', does: 'go right', act: () => pan(0.1) },
  { key: 't', does: 'table', act: () => showPanel('table') },
  { key: 'g', does: 'flame graph', act: () => showPanel('flame graph') },
  { key: 'c', does: 'what changed', act: () => showPanel('what changed') },
  { key: '/', does: 'search', act: () => byId('search').focus() },
  { key: 'd', does: 'next theme', act: nextTheme },
  { key: 'Escape', does: 'clear cursor and selection, show all categories', act: leaveAll },
];

function middle() { return (state.view.begin + state.view.end) / 2; }

function pan(part) {
  const moved = part * (state.view.end - state.view.begin);
  setView(state.view.begin + moved, state.view.end + moved);
}

function leaveAll() {
  state.cursor = state.selected = null;
  if (state.shown !== null) isolate([...state.shown][0]);
  drawAll();
}

function nextTheme() {
  const themes = ['light', 'dark', 'contrast'];
  const root = document.documentElement;
  root.dataset.theme = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
  known.clear();
  drawAll();
}

function takeKey(event) {
  const isTyping = event.target.matches('input, select, textarea');
  if (event.key === 'Escape' && isTyping) event.target.blur();
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey) return;
  const found = KEYS.find(({ key }) => key === event.key);
  if (!found || (event.key === 'Tab' && (event.shiftKey || lanes.length === 1))) return;
  event.preventDefault();
  found.act();
}

// --- the elements of the page --------------------------------------------------------------------

function addControls() {
  byId('controls').append(
    chooser('unit of the x axis', Object.keys(facts.lanes[0].warps), state.alignment, align,
            { normalised: 'beginning to end' }),
    chooser('height of the plots', ['same height', 'own height'], state.heights, (heights) => {
      state.heights = heights;
      draw();
    }),
    chooser('order of the lanes', Object.keys(ORDERS), state.order, (order) => {
      state.order = order;
      orderLanes();
    }, { opened: 'as opened', peak: 'by peak', name: 'by name' }),
    button('fold', 'fold all lanes but the focused one, or unfold all', () => {
      const others = lanes.map((lane, i) => i).filter((i) => i !== state.focus);
      fold(others, state.folded.size === 0);
    }),
    button('fit', 'show the whole run (F, or a double click)', fit),
    button('theme', 'light, dark, high contrast (D)', nextTheme));
  const hints = KEYS.map(({ key, does }) => `${KEY_NAMES[key] || key} ${does}`).join(' · ');
  byId('hints').textContent = 'wheel: zoom, with Shift the height · drag: move · ' +
                              `click: select a block · ${hints}`;
}

function addPanels() {
  const names = ['table', 'flame graph', 'what changed'].slice(0, lanes.length > 1 ? 3 : 2);
  const tabs = names.map((name) => button(name, 'show the ' + name, () => showPanel(name)));
  byId('search').before(...tabs);
  byId('search').addEventListener('input', (event) => {
    state.search = event.target.value;
    drawPanel();
  });
  panel = document.querySelector('.panel');
}

function addTreeControls() {
  const add = (title, words, act) => byId('tree').append(chooser(title, words, words[0], (word) => {
    act(word);
    drawPanel();
  }));
  add('what the tree groups by', ['stack', 'module', 'category'], (by) => state.tree.by = by);
  add('where the tree begins', ['top', 'bottom'], (from) => state.tree.from = from);
  if (lanes.length === 1) return;
  add('compared or not', ['minus the baseline', 'this run only'],
      (word) => state.difference = word !== 'this run only');
}

function addPlot(lane, section, index) {
  const canvas = element('canvas', 'plot');
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', `memory of ${lane.facts.name} over time, by category`);
  section.append(canvas);
  if (index === facts.baseline && lanes.length > 1) {
    section.querySelector('h2').append(element('span', 'badge', 'baseline'));
  }
  section.addEventListener('click', () => {
    if (state.focus !== index) focusOn(index);
  });
  const plot = new Plot(lane, canvas);
  plot.section = section;
  section.querySelector('h2').addEventListener('click', () => {
    fold([index], !state.folded.has(index));
  });
  section.querySelector('h2').title = 'fold or unfold';
  plot.headline = section.querySelector('.peak');
  plots.push(plot);
  listen(plot);
}

async function start() {
  const names = document.querySelectorAll('script.names');
  const changes = document.querySelectorAll('script.changes');
  for (const [i, laneFacts] of facts.lanes.entries()) {
    const text = new TextDecoder().decode(await unpacked(names[i].textContent));
    const lane = new Lane(laneFacts, await unpacked(changes[i].textContent), JSON.parse(text));
    lane.warps = {};
    for (const [word, warp] of Object.entries(laneFacts.warps)) lane.warps[word] = new Warp(warp);
    lanes.push(lane);
    names[i].remove();
    changes[i].remove();
  }
  const [upper, lower] = document.querySelectorAll('template');
  document.querySelector('header').append(upper.content);
  document.body.append(lower.content);
  addControls();
  addPanels();
  addTreeControls();
  const sections = document.querySelectorAll('section.lane');
  lanes.forEach((lane, i) => addPlot(lane, sections[i], i));
  orderLanes();
  fold(lanes.map((lane, i) => i).filter((i) => lanes[i].facts.is_folded), true);
  drawLegend();
  drawBlock();
  const { begin, end } = extent();
  const view = facts.view || [begin, end];
  setView(view[0], view[1]);
  drawPanel();
  window.addEventListener('resize', draw);
  document.addEventListener('scroll', draw, true);  // of the page, or of the lanes in it
  document.addEventListener('keydown', takeKey);
  page.isReady = true;
}

// Tests read this; `frames` are the milliseconds that each picture took.
const page = { isReady: false, frames: [], lanes, plots, state };
window.page = page;
start().catch((error) => {
  const line = `This page cannot be drawn: ${error.message}. It needs a browser from 2023 on.`;
  document.querySelector('header').append(element('p', 'doubt', line));
});
