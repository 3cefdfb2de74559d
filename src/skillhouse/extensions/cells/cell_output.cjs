// Reads what a skill's code wrote to its output folder: see cell_output.py, whose bounds are these.
//
// cell_node.cjs loads it once the code has returned, where the folder is not empty.
'use strict';

const fs = require('fs');

const PART_BYTES = 192 << 10;
const FILES_MAX = 256;
const BYTES_MAX = 64 << 20;
const ENTRIES_MAX = 4096;
const DEPTH_MAX = 8;
const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;

function* content(opened, name, state) {
  const info = fs.fstatSync(opened);
  if (!info.isFile()) {
    yield { name, left_out: 'it is no plain file' };
  } else if (info.nlink !== 1) {
    yield { name, left_out: 'it has several names' };
  } else if (info.size > state.left) {
    yield { name, left_out: `it has ${info.size} bytes, and ${state.left} are left` };
  } else {
    state.files -= 1;
    const piece = Buffer.alloc(Math.min(PART_BYTES, info.size + 1));
    let got = 0;
    for (;;) {
      const size = fs.readSync(opened, piece, 0, piece.length, null);
      if (!size) break;
      got += size;
      if (got > info.size) {
        yield { name, left_out: 'it grew while it was read' };
        return;
      }
      state.left -= size;
      yield { name, data: piece.toString('base64', 0, size) };
    }
    if (!got) yield { name, data: '' };
  }
}

function* entry(path, name, depth, state) {
  const info = fs.lstatSync(path);
  if (info.isDirectory()) {
    if (depth < 2) yield { name, left_out: `it is deeper than ${DEPTH_MAX} directories` };
    else yield* below(path, `${name}/`, depth - 1, state);
  } else if (info.isFile()) {
    // Not blocking: it may be another file by now, such as a pipe.
    const opened = fs.openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      yield* content(opened, name, state);
    } finally {
      fs.closeSync(opened);
    }
  } else {
    yield { name, left_out: 'it is no plain file' };
  }
}

function* below(place, prefix, depth, state) {
  for (const bytes of fs.readdirSync(place, { encoding: 'buffer' }).sort(Buffer.compare)) {
    state.entries -= 1;
    if (state.entries < 0 || state.files < 1) {
      const what = state.files < 1 ? `${FILES_MAX} files` : `${ENTRIES_MAX} names`;
      state.isOver = true;
      yield { name: '', left_out: `the output folder has more than ${what}` };
    }
    if (state.isOver) return;
    const text = bytes.toString('utf8');
    const name = prefix + text;
    if (!Buffer.from(text, 'utf8').equals(bytes)) {
      yield { name, left_out: 'its name is not UTF-8' };
      continue;
    }
    try {
      yield* entry(`${place}/${text}`, name, depth, state);
    } catch (error) {
      yield { name, left_out: `it cannot be read: ${String(error.code)}` };
    }
  }
}

// Yields the params of `core.output`: a piece of a file, or why one is left out.
exports.parts = function* parts(place) {
  if (!fs.lstatSync(place, { throwIfNoEntry: false })?.isDirectory()) {
    yield { name: '', left_out: 'the output folder is no directory any more' };
    return;
  }
  const state = { entries: ENTRIES_MAX, files: FILES_MAX, left: BYTES_MAX, isOver: false };
  yield* below(place, '', DEPTH_MAX, state);
};
