// Draws lanes: every column of pixels shows its highest moment, stacked by category.

const LEFT = 78;  // width of the axis of bytes, in CSS pixels
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 10;

const known = new Map();  // colours of the theme

function color(name) {
  if (!known.has(name)) {
    const style = getComputedStyle(document.documentElement);
    known.set(name, style.getPropertyValue('--' + name).trim());
  }
  return known.get(name);
}

function packedColor([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

function withUnit(bytes, placesOf) {
  let unit = 0;
  let size = bytes;
  while (Math.abs(size) >= 1024 && unit + 1 < UNITS.length) size /= 1024, ++unit;
  return size.toFixed(placesOf(size, unit)) + ' ' + UNITS[unit];
}

// Returns a size as base/units.h writes it: "1.50 GiB", below 1 KiB "640 B".
function bytesText(bytes) { return withUnit(bytes, (size, unit) => (unit === 0 ? 0 : 2)); }

// Returns a size for an axis: "64 MiB".
function shortBytes(bytes) {
  const isWhole = (size) => size >= 100 || Number.isInteger(size);
  return withUnit(bytes, (size) => (isWhole(size) ? 0 : size >= 10 ? 1 : 2));
}

function changeText(before, after) {
  const growth = after - before;
  if (growth === 0) return 'the same';
  const amount = bytesText(Math.abs(growth)) + (growth > 0 ? ' more' : ' less');
  if (before === 0) return amount;
  const percent = (100 * growth) / before;
  return `${amount} (${percent > 0 ? '+' : ''}${percent.toFixed(1)} %)`;
}

function byteTicks(top, most) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, top / Math.max(1, most))));
  const ticks = [];
  for (let at = 0; at <= top; at += step) ticks.push([at, at === 0 ? '0' : shortBytes(at)]);
  return ticks;
}

function decimal(value, step) {
  const places = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return (Math.abs(value) < step * 1e-6 ? 0 : value).toFixed(places);
}

function xTickText(alignment, value, step) {
  const { begin, end } = extent();
  if (alignment === 'step' && value <= begin) return 'start';
  if (alignment === 'step' && value >= end) return 'end';
  if (alignment === 'normalised') return decimal(100 * value, 100 * step) + ' %';
  if (alignment !== 'time') return decimal(value, step);
  if (step < 1e-3) return decimal(value * 1e6, step * 1e6) + ' µs';
  if (step < 0.5) return decimal(value * 1e3, step * 1e3) + ' ms';
  return decimal(value, step) + ' s';
}

function xTicks(alignment, begin, end, most) {
  const least = (end - begin) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(least));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((it) => it >= least * (1 - 1e-9));
  if (alignment === 'event') step = Math.max(1, step);
  const ticks = [];
  for (let i = Math.ceil(begin / step - 1e-9); i * step <= end + step * 1e-9; ++i) {
    ticks.push([i * step, xTickText(alignment, i * step, step)]);
  }
  return ticks;
}

class Plot {
  constructor(lane, canvas) {
    this.lane = lane;
    this.canvas = canvas;
    this.columns = [];
  }

  // Sizes are in CSS pixels; the canvas has `ratio` pixels for each.
  measure() {
    this.ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const pixels = [Math.round(width * this.ratio), Math.round(height * this.ratio)];
    if (this.canvas.width !== pixels[0]) this.canvas.width = pixels[0];
    if (this.canvas.height !== pixels[1]) this.canvas.height = pixels[1];
    this.width = Math.max(1, width - LEFT - RIGHT);
    this.height = Math.max(1, height - TOP - BOTTOM);
  }

  xAt(pixel) {
    const { begin, end } = state.view;
    return begin + ((pixel - LEFT) / this.width) * (end - begin);
  }
  pixelOf(x) {
    const { begin, end } = state.view;
    return LEFT + ((x - begin) / (end - begin)) * this.width;
  }
  yOf(bytes) { return TOP + this.height * (1 - bytes / this.top); }
  bytesAt(pixel) { return (1 - (pixel - TOP) / this.height) * this.top; }

  // Returns the highest moment that a pixel column shows; null in a gap.
  momentAt(pixel) { return this.columns[Math.floor((pixel - LEFT) * this.ratio)] || null; }

  find(warp, count) {
    const { begin, end } = state.view;
    const width = (end - begin) / count;
    this.columns = [];
    for (let i = 0; i < count; ++i) {
      const changes = warp.changes(this.lane, begin + i * width, begin + (i + 1) * width);
      this.columns.push(
        changes && this.lane.highest(changes[0] - 1, Math.max(changes[0], changes[1])),
      );
    }
  }

  draw(warp, top) {
    this.measure();
    this.top = top;
    this.warp = warp;
    const width = Math.max(1, Math.round(this.width * this.ratio));
    const height = Math.max(1, Math.round(this.height * this.ratio));
    const context = this.canvas.getContext('2d');
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = color('card');
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const shown = this.lane.shown === null ? null : [...this.lane.shown];
    const theme = document.documentElement.dataset.theme;
    const key = JSON.stringify([state.view, state.alignment, top, shown, theme, width, height]);
    if (key !== this.key) {
      this.key = key;
      this.find(warp, width);
      this.raster(context, width, height);
    }
    context.putImageData(this.image, Math.round(LEFT * this.ratio), Math.round(TOP * this.ratio));
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.drawAxes(context);
    this.drawReserved(context);
    this.drawFailures(context);
    this.drawSelected(context);
    this.drawMarks(context);
  }

  raster(context, width, height) {
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = context.createImageData(width, height);
    }
    const pixels = new Uint32Array(this.image.data.buffer);
    pixels.fill(packedColor(parsedColor(color('plot'))));
    const edge = packedColor(parsedColor(color('edge')));
    const colors = facts.categories.map((category) => packedColor(category.color));
    for (let x = 0; x < width; ++x) {
      const moment = this.columns[x];
      if (!moment || moment.bytes <= 0) continue;
      const bytes = this.lane.bytesAfter(moment.change);
      let sum = 0;
      let low = height;
      for (let c = 0; c < colors.length; ++c) {
        const category = facts.categories[c].id;
        if (bytes[category] <= 0 || !shows(category)) continue;
        sum += bytes[category];
        const high = Math.max(0, Math.round(height * (1 - sum / this.top)));
        for (let y = high; y < low; ++y) pixels[y * width + x] = colors[c];
        low = Math.min(low, high);
      }
      if (low < height) pixels[low * width + x] = edge;
    }
  }

  drawAxes(context) {
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const most = Math.max(1, Math.floor(this.height / 32));
    for (const [bytes, text] of byteTicks(this.top, most)) {
      const y = Math.round(this.yOf(bytes)) + 0.5;
      line(context, LEFT, y, LEFT + this.width, y, color('grid'), 0.45);
      context.fillStyle = color('muted');
      context.fillText(text, LEFT - 6, y);
    }
    context.textAlign = 'center';
    const { begin, end } = state.view;
    for (const [x, text] of xTicks(state.alignment, begin, end, this.width / 90)) {
      const pixel = Math.round(this.pixelOf(x)) + 0.5;
      this.upright(context, pixel, color('grid'), 0.45);
      context.fillStyle = color('muted');
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(pixel, LEFT + this.width + RIGHT - half),
                       TOP + this.height + BOTTOM / 2 + 1);
    }
  }

  // Draws the memory that LibTorch had reserved as a line, but only over the whole stack.
  drawReserved(context) {
    if (this.lane.shown !== null || this.lane.reserved.length === 0) return;
    context.strokeStyle = color('muted');
    context.setLineDash([5, 4]);
    context.beginPath();
    let at = 0;
    let bytes = 0;
    let last = null;  // y of the pixel before
    const all = this.lane.reserved;
    for (let i = 0; i < this.columns.length; ++i) {
      const x = LEFT + i / this.ratio;
      const time = this.columns[i] ? this.warp.timeAt(this.lane, this.xAt(x)) : null;
      if (time === null) {
        last = null;
        continue;
      }
      while (at < all.length && all[at][0] <= time) bytes = all[at++][1];
      const y = this.yOf(bytes);
      if (last === null) context.moveTo(x, y);
      else if (y !== last) context.lineTo(x, last), context.lineTo(x, y);
      context.lineTo(x + 1 / this.ratio, y);
      last = y;
    }
    context.stroke();
    context.setLineDash([]);
  }

  // Marks where requests for memory failed.
  drawFailures(context) {
    for (const { us, change } of this.lane.facts.failures) {
      const x = this.warp.xAt(this.warp.byChange ? change - 1 : us);
      this.upright(context, this.pixelOf(x), color('more'));
    }
  }

  // Draws a line over the whole height, if it is in view.
  upright(context, x, stroke, alpha) {
    if (x >= LEFT && x <= LEFT + this.width) {
      line(context, x, TOP, x, TOP + this.height, stroke, alpha);
    }
  }

  // Outlines the selected block where it lies in the stack.
  drawSelected(context) {
    if (!state.selected || state.selected.lane !== this.lane) return;
    const { block } = state.selected;
    const category = this.lane.categoryOf(block);
    if (!shows(category)) return;
    context.fillStyle = color('accent');
    for (let i = 0; i < this.columns.length; ++i) {
      const moment = this.columns[i];
      if (!moment || moment.change < this.lane.born[block]) continue;
      if (moment.change >= this.lane.died[block]) continue;
      const low = this.belowCategory(moment.change, category) + state.selected.below(moment.change);
      const high = this.yOf(low + this.lane.size(block));
      context.fillRect(LEFT + i / this.ratio, high, 1 / this.ratio,
                       Math.max(1.5, this.yOf(low) - high));
    }
  }

  belowCategory(change, category) {
    const bytes = this.lane.bytesAfter(change);
    let below = 0;
    for (const { id } of facts.categories) {
      if (id === category) return below;
      if (shows(id)) below += bytes[id];
    }
    return below;
  }

  // Marks the peak, if it is in view, and the cursor.
  drawMarks(context) {
    const { peak } = this.lane;
    const x = this.pixelOf(this.warp.xOf(this.lane, peak.change));
    if (peak.change >= 0 && x >= LEFT && x <= LEFT + this.width) {
      context.strokeStyle = color('text');
      context.beginPath();
      context.arc(x, Math.max(TOP, this.yOf(peak.bytes)), 4, 0, 2 * Math.PI);
      context.stroke();
    }
    const cursor = color('cursor');
    if (state.cursor !== null) this.upright(context, this.pixelOf(state.cursor.x), cursor);
    if (state.hover !== null) this.upright(context, this.pixelOf(state.hover), cursor, 0.5);
  }

  // Returns the block that is drawn at a point, and the moment that its column shows.
  blockAt(x, y) {
    const moment = this.momentAt(x);
    if (!moment || moment.change < 0) return null;
    const bytes = this.lane.bytesAfter(moment.change);
    let left = this.bytesAt(y);
    for (const { id } of facts.categories) {
      if (!shows(id)) continue;
      if (left < bytes[id]) return left < 0 ? null : this.blockIn(id, left, moment.change);
      left -= bytes[id];
    }
    return null;
  }
  blockIn(category, left, change) {
    for (const block of this.lane.aliveAfter(change)) {
      if (this.lane.categoryOf(block) !== category) continue;
      left -= this.lane.size(block);
      if (left < 0) return block;
    }
    return null;
  }
}

// A block with a function that returns the bytes below it in its category after a change: the older
// blocks of the category. While the block lives these can only be freed, so that is a short list of
// falls.
class Selected {
  constructor(lane, block) {
    this.lane = lane;
    this.block = block;
    const category = lane.categoryOf(block);
    this.falls = [];
    this.atBirth = 0;
    for (let i = 0; i < block; ++i) {
      if (lane.died[i] <= lane.born[block] || lane.categoryOf(i) !== category) continue;
      this.atBirth += lane.size(i);
      if (lane.died[i] < lane.died[block]) this.falls.push([lane.died[i], lane.size(i)]);
    }
    this.falls.sort((a, b) => a[0] - b[0]);
    for (let i = 1; i < this.falls.length; ++i) this.falls[i][1] += this.falls[i - 1][1];
  }
  below(change) {
    const fallen = firstWhere(this.falls.length, (i) => this.falls[i][0] > change);
    return this.atBirth - (fallen === 0 ? 0 : this.falls[fallen - 1][1]);
  }
}

function parsedColor(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function line(context, x0, y0, x1, y1, stroke, alpha = 1) {
  context.globalAlpha = alpha;
  context.strokeStyle = stroke;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.globalAlpha = 1;
}
