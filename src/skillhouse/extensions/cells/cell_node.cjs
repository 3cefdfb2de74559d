// What runs in a cell for JavaScript skills: one process, for one call.
//
// Its arguments are the descriptor of the socket to the core, the skill's file, "spare" where it is
// started before there is a call, and the file with the code cache of its packages, if there is one. It loads nothing of the skill until the core sends the call, or
// the order to load the code of a skill with packages ahead and to wait. Messages are JSON-RPC
// 2.0, each after its length. The first one is waited for in a plain read, and a call that asks
// nothing of the core answers by a plain write: the machinery for sockets takes some milliseconds to
// load, and half of one at each event.
'use strict';

const fs = require('fs');
const os = require('os');
const path = require('path');

const FRAME_BYTES = 8 << 20;
// Node's own memory, without what V8 counts.
const NODE_BYTES = 40 << 20;
// Requests that the core answers at once; more wait here for their turn.
const AT_ONCE = 16;
const EXECUTE = 'tool.execute';
const TOOL_FAILED = -32000;
const INVALID_PARAMS = -32602;

const descriptor = Number(process.argv[2]);
const entry = process.argv[3];
// The folder of which the core keeps the files (cell_output.py).
const output = path.join(process.env.TMPDIR || '/tmp', 'skill-output');
const waiting = new Map();
const unsent = new Map();
let open = 0;
let isFinished = false;
let link = null;
let held = Buffer.alloc(0);
let wanted = 0;
let number = 0;
let token = '';
let isDebugging = false;
// The tools that were loaded before the call came, or the error.
let ahead = null;

class Refused extends Error {}

class CapabilityError extends Error {
  constructor(error) {
    super(error.message);
    this.name = 'CapabilityError';
    this.code = error.code;
    this.reason = error.data && error.data.reason ? error.data.reason : '';
  }
}

function framed(value) {
  const data = Buffer.from(JSON.stringify(value), 'utf8');
  if (data.length > FRAME_BYTES) {
    throw new Error(`expected at most ${FRAME_BYTES} bytes of JSON, got ${data.length}`);
  }
  const head = Buffer.alloc(4);
  head.writeUInt32BE(data.length);
  return Buffer.concat([head, data]);
}

function write(data) {
  // Nothing follows the answer of the call, whatever the skill still does.
  if (isFinished) return;
  if (link) {
    link.write(data);
    return;
  }
  let sent = 0;
  while (sent < data.length) sent += fs.writeSync(descriptor, data, sent);
}

function tell(method, params) {
  write(framed({ jsonrpc: '2.0', method, params: { ...params, capability: token } }));
}

function ask(method, params, options) {
  return new Promise((resolve, reject) => {
    const signal = options && options.signal;
    if (signal) signal.throwIfAborted();
    number += 1;
    const id = number;
    const body = { ...params, capability: token };
    const data = framed({ jsonrpc: '2.0', method, params: body, id });
    attend();
    const abort = () => {
      cancel(id);
      reject(signal.reason);
    };
    if (signal) signal.addEventListener('abort', abort, { once: true });
    const end = (settle) => (value) => {
      if (signal) signal.removeEventListener('abort', abort);
      settle(value);
    };
    waiting.set(id, { resolve: end(resolve), reject: end(reject) });
    if (open >= AT_ONCE) {
      unsent.set(id, data);
      return;
    }
    open += 1;
    write(data);
  });
}

function follow() {
  const next = unsent.entries().next();
  if (next.done) {
    open -= 1;
    return;
  }
  const [id, data] = next.value;
  unsent.delete(id);
  write(data);
}

function cancel(id) {
  // The core ends a request that it has, and does not answer it.
  if (!waiting.delete(id) || unsent.delete(id)) return;
  tell('core.cancel', { id });
  follow();
}

function response(value) {
  const headers = new Map();
  for (const [name, text] of Object.entries(value.headers)) headers.set(name.toLowerCase(), text);
  return {
    status: value.status,
    ok: value.status >= 200 && value.status < 300,
    headers: {
      get: (name) => (headers.has(name.toLowerCase()) ? headers.get(name.toLowerCase()) : null),
      has: (name) => headers.has(name.toLowerCase()),
      entries: () => headers.entries(),
      forEach: (visit) => headers.forEach((text, name) => visit(text, name)),
      [Symbol.iterator]: () => headers.entries(),
    },
    body: value.body,
    text: async () => value.body,
    json: async () => JSON.parse(value.body),
  };
}

function context(told) {
  const readFile = async (name, options) =>
    (await ask('core.readFile', { path: String(name) }, options)).content;
  return {
    env: { ...told.env },
    meta: { ...told.meta },
    output,
    fetch: async (url, options) => {
      const asked = { url: String(url) };
      for (const name of ['method', 'headers', 'body']) {
        const value = options ? options[name] : undefined;
        if (value !== undefined && value !== null) asked[name] = value;
      }
      return response(await ask('core.fetch', asked, options));
    },
    sign: (request, options) => ask('core.sign', { request }, options),
    readFile,
    read_file: readFile,
    log: (...words) => tell('core.log', { text: words.map(String).join(' ') }),
    progress: (fraction, text = '') => tell('core.progress', { fraction, text: String(text) }),
  };
}

async function loaded(file) {
  // `require` takes ES modules too, some milliseconds sooner than `import`, but not all of them.
  try {
    return require(file);
  } catch (error) {
    const codes = ['ERR_REQUIRE_ESM', 'ERR_REQUIRE_ASYNC_MODULE'];
    if (!codes.includes(error.code) && !(error instanceof SyntaxError)) throw error;
    return import(require('url').pathToFileURL(file).href);
  }
}

function useCodeCache(file) {
  if (!file) return;
  try {
    require(path.join(path.dirname(process.argv[1]), 'cell_code_cache.cjs')).use(file);
  } catch (error) {
    // Without it, Node compiles the packages.
    console.error(`code cache: ${text(error)}`);
  }
}

async function load(file) {
  useCodeCache(file === entry ? process.argv[5] : '');
  const module = await loaded(file);
  const tools = module.tools || (module.default && module.default.tools);
  if (!tools || typeof tools !== 'object') {
    throw new Refused(`expected an object \`tools\` in ${file.split('/').pop()}`);
  }
  return tools;
}

const settled = (loading) => loading.then((tools) => ({ tools }), (error) => ({ error }));

async function prepare({ env, load: loads }) {
  if (loads) {
    Object.assign(process.env, env);
    const found = await settled(load(entry));
    ahead = ahead || found;
  }
  const params = { modules: [], bytes: resident(), loaded: !(ahead && ahead.error) };
  write(framed({ jsonrpc: '2.0', method: 'cell.prepared', params }));
}

async function run(request, file) {
  const { params } = request;
  token = params.capability;
  isDebugging = Boolean(params.context.meta.debug);
  if (ahead === null) {
    Object.assign(process.env, params.context.env);
    ahead = await settled(load(file));
  }
  if ('error' in ahead) throw ahead.error;
  const { tools } = ahead;
  if (request.method === 'tool.list') return Object.keys(tools).sort();
  if (!Object.hasOwn(tools, params.tool) || typeof tools[params.tool] !== 'function') {
    throw new Refused(`the skill exports no tool '${params.tool}'`);
  }
  const result = await tools[params.tool](params.args, context(params.context));
  return result === undefined ? null : result;
}

function text(error) {
  try {
    return String(error).slice(0, 8192);
  } catch {
    return 'an error that cannot be shown';
  }
}

const PLACE = /^(?:\s*at (?:async |new )*([^\n(]{0,80}?) ?\(?)?(file:\/\/)?(\/[^\n()]{1,1000}?):(\d{1,9})(?::\d+)?\)?$/gm;

function frames(error) {
  // Of each step path, line and function, the innermost last; the core keeps those of the skill.
  try {
    const found = [];
    for (const [, name, isUrl, path, line] of String(error.stack).slice(0, 65536).matchAll(PLACE)) {
      const file = isUrl ? decodeURIComponent(path) : path;
      if (!file.includes('/node_modules/')) found.push([file, Number(line), name || '']);
    }
    return found.slice(0, 32).reverse();
  } catch {
    return [];
  }
}

const UNREACHED = new Set(['ENOTFOUND', 'EAI_AGAIN', 'ENETUNREACH', 'ECONNREFUSED', 'EHOSTUNREACH']);

function isUnreached(error) {
  try {
    for (let one = error, left = 16; one && left; one = one.cause, left -= 1) {
      if (UNREACHED.has(one.code)) return true;
    }
  } catch {
    // What a skill throws may be anything.
  }
  return false;
}

function finish(data) {
  // The process ends with its one call, whatever the skill still waits for.
  if (isFinished) return;
  if (!link) {
    write(data);
    process.exit(0);
  }
  isFinished = true;
  link.write(data, () => process.exit(0));
}

function isEmpty(place) {
  try {
    return fs.lstatSync(place).isDirectory() && !fs.readdirSync(place).length;
  } catch {
    return false;
  }
}

async function sendOutput() {
  if (isEmpty(output)) return;
  try {
    const { parts } = require(path.join(path.dirname(process.argv[1]), 'cell_output.cjs'));
    for (const params of parts(output)) {
      tell('core.output', params);
      if (link && link.writableNeedDrain) await new Promise((go) => { link.once('drain', go); });
    }
  } catch (error) {
    const why = `the output folder cannot be read: ${text(error)}`;
    tell('core.output', { name: '', left_out: Buffer.from(why.slice(0, 200), 'utf8').toString('utf8') });
  }
}

function answer(id, error, prefix = '') {
  const code = error instanceof Refused ? INVALID_PARAMS : TOOL_FAILED;
  const said = prefix + (error instanceof Refused ? error.message : text(error));
  // Half surrogates are no text to the core.
  const message = Buffer.from(said, 'utf8').toString('utf8');
  if (isDebugging) console.error(error);
  const data = { frames: error instanceof Refused ? [] : frames(error) };
  if (isUnreached(error)) data.unreached = `node ${process.versions.node}`;
  finish(framed({ jsonrpc: '2.0', error: { code, message, data }, id }));
}

async function serve(request) {
  let result;
  try {
    result = await run(request, entry);
  } catch (error) {
    if (request.method === EXECUTE) await sendOutput();
    answer(request.id, error);
    return;
  }
  if (request.method === EXECUTE) await sendOutput();
  let data;
  try {
    data = framed({ jsonrpc: '2.0', result, id: request.id });
  } catch (error) {
    answer(request.id, error, 'the result is not JSON: ');
    return;
  }
  finish(data);
}

function take(message) {
  const asked = waiting.get(message.id);
  if (asked === undefined) return;
  waiting.delete(message.id);
  follow();
  if (message.error) asked.reject(new CapabilityError(message.error));
  else asked.resolve(message.result);
}

function attend() {
  if (link) return;
  const net = require('net');
  link = new net.Socket({ fd: descriptor, readable: true, writable: true });
  link.on('data', (chunk) => {
    held = held.length ? Buffer.concat([held, chunk]) : chunk;
    while (held.length >= (wanted || 4)) {
      if (!wanted) {
        wanted = 4 + held.readUInt32BE(0);
        continue;
      }
      const data = held.subarray(4, wanted);
      held = held.subarray(wanted);
      wanted = 0;
      take(JSON.parse(data.toString('utf8')));
    }
  });
  link.on('end', () => process.exit(0));
  link.on('error', () => process.exit(0));
}

function exactly(size) {
  const data = Buffer.alloc(size);
  let got = 0;
  while (got < size) {
    const more = fs.readSync(descriptor, data, got, size - got, null);
    // Nobody calls any more.
    if (!more) process.exit(0);
    got += more;
  }
  return data;
}

function next() {
  return JSON.parse(exactly(exactly(4).readUInt32BE(0)).toString('utf8'));
}

async function warm() {
  // What is done for the first time takes some milliseconds: a spare has them before its call.
  const file = `${process.env.HOME}/warm.js`;
  fs.writeFileSync(file, 'export const tools = { warm: async (params) => params };');
  const told = { env: {}, meta: {} };
  const params = { tool: 'warm', args: {}, context: told, capability: '' };
  const request = { jsonrpc: '2.0', method: 'tool.execute', params, id: '' };
  const result = await run(JSON.parse(framed(request).toString('utf8', 4)), file);
  framed({ jsonrpc: '2.0', result, id: '' });
  fs.unlinkSync(file);
  ahead = null;
  require('net');
}

function resident() {
  // Without /proc nothing tells how much it is now. The first is the most that it was, or that the
  // program was that started it (getrusage(2): execve keeps it), so the second bounds it.
  const heap = require('v8').getHeapStatistics();
  const known = heap.total_physical_size + heap.malloced_memory + heap.external_memory;
  return Math.min(process.resourceUsage().maxRSS * 1024, NODE_BYTES + known);
}

function memoryUsage() {
  const heap = require('v8').getHeapStatistics();
  return {
    rss: resident(),
    heapTotal: heap.total_heap_size,
    heapUsed: heap.used_heap_size,
    external: heap.external_memory,
    arrayBuffers: 0,
  };
}

function processors() {
  // Likewise; programs size their pools by how many there are.
  const times = { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 };
  const one = () => ({ model: 'unknown', speed: 0, times: { ...times } });
  return Array.from({ length: os.availableParallelism() }, one);
}

async function main() {
  os.cpus = processors;
  fs.mkdirSync(output, { mode: 0o700 });
  process.env.OUTPUT_DIR = output;
  process.memoryUsage = Object.assign(memoryUsage, { rss: resident });
  if (process.argv[4] === 'spare') await warm();
  let request = next();
  let failed = (error) => {
    ahead = { error };
  };
  process.on('unhandledRejection', (error) => failed(error));
  process.on('uncaughtException', (error) => failed(error));
  if (request.method === 'cell.prepare') {
    await prepare(request.params);
    request = next();
  }
  const { id } = request;
  failed = (error) => answer(id, error);
  serve(request);
}

main();
