'use strict';
// Reads the changes of lanes, as page_columns.h packs them, and finds the highest moment of any
// range of them. Times are microseconds; positions are times or numbers of changes.

const LEAF = 64;  // changes below a leaf of the pyramid
const FAN = 8;    // nodes below a node
const BEFORE_ALL = -1;

function categoryCount() { return facts.categories.length; }

// Returns the first number from 0 on for which `holds` is true, as for all after it; or `count`.
function firstWhere(count, holds) {
  let begin = 0;
  for (let end = count; begin < end;) {
    const middle = (begin + end) >>> 1;
    if (holds(middle)) end = middle;
    else begin = middle + 1;
  }
  return begin;
}

async function unpacked(base64) {
  const packed = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class Varints {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  next() {
    let byte = this.bytes[this.at++];
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    for (let scale = 128; ; scale *= 128) {
      byte = this.bytes[this.at++];
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
  }
  nextSigned() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}

// Guesses the kind and the life of the next block, as the note in page_columns.h says.
class Guesses {
  constructor(kinds, lives) {
    this.kinds = kinds;
    this.lives = lives;
    this.count = 0;
    this.last = new Int32Array(1 << 18).fill(-1);
    this.at = -1;
  }
  kind() { return this.at < 0 ? -1 : this.kinds[this.at]; }
  life() { return this.at < 0 ? 0 : this.lives[this.at]; }
  take(kind, life) {
    const isRight = this.kind() === kind;
    this.kinds[this.count] = kind;
    this.lives[this.count++] = life;
    this.at = isRight ? this.at + 1 : -1;
    if (this.count < 6) return;
    let hash = 0;
    for (let i = this.count - 6; i < this.count; ++i) {
      hash = Math.imul(hash ^ this.kinds[i], 0x9e3779b1);
    }
    const place = hash >>> 14;
    if (this.at < 0) this.at = this.last[place];
    this.last[place] = this.count;
  }
}

// One rank's memory: `block[c]` is the block that change c allocates, or ~block if it frees it.
class Lane {
  constructor(facts, changes, names) {
    this.facts = facts;
    this.names = names;
    this.read(new Varints(changes));
    this.show(null);
  }

  read(numbers) {
    this.changes = numbers.next();
    this.blocks = numbers.next();
    const kinds = numbers.next();
    const samples = numbers.next();
    this.group = new Int32Array(kinds);
    this.given = new Float64Array(kinds);
    this.asked = new Float64Array(kinds);
    for (let i = 0; i < kinds; ++i) {
      this.group[i] = numbers.next();
      this.given[i] = numbers.next();
      this.asked[i] = numbers.next();
    }
    this.time = new Float64Array(this.changes);
    for (let i = 0, now = 0; i < this.changes; ++i) this.time[i] = now += numbers.next();
    this.readBlocks(numbers);
    this.reserved = [];
    for (let i = 0, time = 0, bytes = 0; i < samples; ++i) {
      time += numbers.next();
      bytes += numbers.nextSigned();
      this.reserved.push([time, bytes]);
    }
    this.category = this.group.map((group) => this.names.groups[group][2]);
  }

  readBlocks(numbers) {
    const codes = new Float64Array(this.blocks);
    for (let i = 0; i < this.blocks; ++i) codes[i] = numbers.next();
    this.kind = new Int32Array(this.blocks);
    const lives = new Int32Array(this.blocks);
    const guesses = new Guesses(this.kind, lives);
    this.born = new Int32Array(this.blocks);
    this.died = new Int32Array(this.blocks);
    this.block = new Int32Array(this.changes);
    let change = 0;
    for (let i = 0; i < this.blocks; ++i) {
      const kind = codes[i] === 0 ? guesses.kind() : codes[i] - 1;
      const life = guesses.life() + numbers.nextSigned();
      guesses.take(kind, life);
      while (this.block[change] < 0) ++change;  // frees are known: their blocks came earlier
      this.born[i] = change;
      this.died[i] = life === 0 ? this.changes : change + life;
      this.block[change++] = i;
      if (life !== 0) this.block[this.died[i]] = ~i;
    }
  }

  size(block) { return this.given[this.kind[block]]; }
  categoryOf(block) { return this.category[this.kind[block]]; }
  groupOf(block) { return this.names.groups[this.group[this.kind[block]]]; }
  nameOf(block) {
    const [label, action, category] = this.groupOf(block);
    const named = this.names.texts[label];
    if (named !== '') return named;
    const place = this.names.texts[action];
    return wordsOf(category) + (place === '' ? ' outside a pass' : ' of ' + place);
  }

  // Counts only the categories of `shown` from now on, or all if it is null.
  show(shown) {
    this.shown = shown;
    const leaves = Math.ceil(this.changes / LEAF);
    this.before = new Float64Array(leaves * categoryCount());  // the memory before each leaf
    this.totals = new Float64Array(this.changes);  // of what is shown, after each change
    const bytes = new Float64Array(categoryCount());
    let total = 0;
    for (let change = 0; change < this.changes; ++change) {
      if (change % LEAF === 0) this.before.set(bytes, (change / LEAF) * categoryCount());
      this.totals[change] = total += this.apply(change, bytes);
    }
    this.levels = [levelAbove({ most: this.totals, at: null }, LEAF)];
    while (this.levels.at(-1).most.length > FAN) {
      this.levels.push(levelAbove(this.levels.at(-1), FAN));
    }
    this.peak = this.highest(BEFORE_ALL, this.changes);
  }

  // Adds a change to the bytes of each category, and returns what it adds to those that are shown.
  apply(change, bytes) {
    const word = this.block[change];
    const kind = this.kind[word < 0 ? ~word : word];
    const category = this.category[kind];
    const added = word < 0 ? -this.given[kind] : this.given[kind];
    bytes[category] += added;
    return this.shown === null || this.shown.has(category) ? added : 0;
  }

  // Returns the bytes of each category after a change.
  bytesAfter(change) {
    const bytes = new Float64Array(categoryCount());
    if (change < 0) return bytes;
    const leaf = Math.floor(change / LEAF);
    bytes.set(this.before.subarray(leaf * categoryCount(), (leaf + 1) * categoryCount()));
    for (let at = leaf * LEAF; at <= change; ++at) this.apply(at, bytes);
    return bytes;
  }
  totalAfter(change) { return change < 0 ? 0 : this.totals[change]; }

  // Returns the highest of the states after the changes begin..end-1: its bytes and its change, the
  // first one of that height. BEFORE_ALL is the empty state before all changes.
  highest(begin, end) {
    const best = { bytes: -1, change: BEFORE_ALL };
    if (begin < 0) best.bytes = 0, begin = 0;
    end = Math.min(end, this.changes);
    const first = Math.ceil(begin / LEAF);
    const last = Math.floor(end / LEAF);
    if (first >= last) {
      this.scan(begin, end, best);
      return best;
    }
    this.scan(begin, first * LEAF, best);
    this.climb(first, last, best);
    this.scan(last * LEAF, end, best);
    return best;
  }
  scan(begin, end, best) {
    for (let change = begin; change < end; ++change) {
      const total = this.totals[change];
      if (total > best.bytes) best.bytes = total, best.change = change;
    }
  }
  climb(begin, end, best) {
    const take = (level, node) => {
      const { most, at } = this.levels[level];
      const isFirst = most[node] === best.bytes && at[node] < best.change;
      if (most[node] > best.bytes || isFirst) best.bytes = most[node], best.change = at[node];
    };
    for (let level = 0; begin < end; ++level) {
      const isTop = level + 1 === this.levels.length;
      while (begin < end && (isTop || begin % FAN !== 0)) take(level, begin++);
      while (begin < end && end % FAN !== 0) take(level, --end);
      begin /= FAN;
      end /= FAN;
    }
  }

  // Returns the first change at or after a time.
  changeAt(time) { return firstWhere(this.changes, (change) => this.time[change] >= time); }

  // Returns the blocks that are alive after a change, in order of birth.
  aliveAfter(change) {
    const alive = [];
    for (let i = 0; i < this.blocks && this.born[i] <= change; ++i) {
      if (this.died[i] > change) alive.push(i);
    }
    return alive;
  }

  // Returns [step or -1, phase] of a change.
  stretchOf(change) {
    const all = this.names.stretches;
    return all.findLast((stretch, i) => i === 0 || stretch[3] <= change) || [-1, 0, 0, 0];
  }
  momentText(change) {
    if (change < 0) return 'before anything was allocated';
    const [step, phase] = this.stretchOf(change);
    const place = step >= 0 ? 'step ' + step : facts.phases[phase];
    const { zero_us: zero, first_step: first } = this.facts;
    const clock = ((this.time[change] - zero) / 1e6).toFixed(6) + ' s';
    return `${place}, ${first === null ? 'at ' + clock : `${clock} from step ${first}`}`;
  }
}

// Returns the highest of each `fan` neighbours, and its change: the first one of that height. The
// changes themselves have no `at`.
function levelAbove({ most, at }, fan) {
  const count = Math.ceil(most.length / fan);
  const above = { most: new Float64Array(count), at: new Int32Array(count) };
  for (let i = 0; i < most.length; ++i) {
    const node = Math.floor(i / fan);
    if (i % fan !== 0 && most[i] <= above.most[node]) continue;
    above.most[node] = most[i];
    above.at[node] = at === null ? i : at[i];
  }
  return above;
}

// Maps x to the positions of a lane, piece by piece, as viewer/model/warp.h does.
class Warp {
  constructor({ by_change: byChange, pieces }) {
    this.byChange = byChange;
    this.pieces = pieces;
  }
  timeAt(lane, x) {
    const position = this.position(x, true);
    if (position === null || !this.byChange) return position;
    return lane.time[Math.max(0, Math.min(lane.changes - 1, Math.floor(position)))];
  }
  begin() { return this.pieces.length === 0 ? 0 : this.pieces[0][0]; }
  end() { return this.pieces.length === 0 ? 1 : this.pieces.at(-1)[1]; }

  // Returns the changes that a column shows: the first one, and the one after the last; null if it
  // shows none.
  changes(lane, begin, end) {
    const low = this.position(begin, true);
    const high = this.position(end, false);
    if (low === null || high === null || high < low) return null;
    if (this.byChange) return [Math.ceil(low), Math.ceil(high)];
    return [lane.changeAt(low), lane.changeAt(high)];
  }
  // Returns the position at x; in a gap, the position of the next piece or else of the one before.
  position(x, wantsNext) {
    const at = firstWhere(this.pieces.length, (i) => this.pieces[i][1] >= x);
    const piece = this.pieces[at];
    if (piece && piece[0] <= x) {
      const [from, to, low, high] = piece;
      return to === from ? low : low + (x - from) / (to - from) * (high - low);
    }
    const near = wantsNext ? piece?.[2] : this.pieces[at - 1]?.[3];
    return near === undefined ? null : near;
  }
  xOf(lane, change) { return this.xAt(this.byChange ? change : lane.time[change]); }
  // Returns the x of a change, or of a time in microseconds.
  xAt(position) {
    const piece = this.pieces.find(([, , , high]) => position <= high);
    if (!piece) return this.end();
    const [from, to, low, high] = piece;
    return from + (high === low ? 0 : Math.max(0, (position - low) / (high - low))) * (to - from);
  }
}
