// What runs in a cell for JavaScript skills: one process, for one call.
//
// Started before the call is there, it loads nothing of the skill until then. Its arguments are
// the descriptor of the socket to the core and the skill's file; messages are JSON-RPC 2.0, each after its length.
'use strict';

const fs = require('fs');
const net = require('net');
const { pathToFileURL } = require('url');

const FRAME_BYTES = 8 << 20;
const TOOL_FAILED = -32000;
const INVALID_PARAMS = -32602;

const link = new net.Socket({ fd: Number(process.argv[2]), readable: true, writable: true });
const entry = process.argv[3];
const waiting = new Map();
let held = Buffer.alloc(0);
let wanted = 0;
let number = 0;
let token = '';
let started = false;

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

function tell(method, params) {
  link.write(framed({ jsonrpc: '2.0', method, params: { ...params, capability: token } }));
}

function ask(method, params) {
  return new Promise((resolve, reject) => {
    number += 1;
    const id = number;
    waiting.set(id, { resolve, reject });
    const body = { ...params, capability: token };
    link.write(framed({ jsonrpc: '2.0', method, params: body, id }));
  });
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
  const readFile = async (name) => (await ask('core.readFile', { path: String(name) })).content;
  return {
    env: { ...told.env },
    meta: { ...told.meta },
    fetch: async (url, options) => {
      const asked = { url: String(url) };
      for (const name of ['method', 'headers', 'body']) {
        const value = options ? options[name] : undefined;
        if (value !== undefined && value !== null) asked[name] = value;
      }
      return response(await ask('core.fetch', asked));
    },
    sign: (request) => ask('core.sign', { request }),
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
    return import(pathToFileURL(file).href);
  }
}

async function load() {
  const module = await loaded(entry);
  const tools = module.tools || (module.default && module.default.tools);
  if (!tools || typeof tools !== 'object') {
    throw new Refused(`expected an object \`tools\` in ${entry.split('/').pop()}`);
  }
  return tools;
}

async function run(request) {
  const { params } = request;
  token = params.capability;
  Object.assign(process.env, params.context.env);
  const tools = await load();
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

function finish(value) {
  // The process ends with its one call, whatever the skill still waits for.
  link.write(value, () => process.exit(0));
}

function answer(id, error, prefix = '') {
  const code = error instanceof Refused ? INVALID_PARAMS : TOOL_FAILED;
  const said = prefix + (error instanceof Refused ? error.message : text(error));
  // Half surrogates are no text to the core.
  const message = Buffer.from(said, 'utf8').toString('utf8');
  finish(framed({ jsonrpc: '2.0', error: { code, message }, id }));
}

async function serve(request) {
  let result;
  try {
    result = await run(request);
  } catch (error) {
    answer(request.id, error);
    return;
  }
  let data;
  try {
    data = framed({ jsonrpc: '2.0', result, id: request.id });
  } catch (error) {
    answer(request.id, error, 'the result is no JSON: ');
    return;
  }
  finish(data);
}

function take(message) {
  if (!started) {
    started = true;
    process.on('unhandledRejection', (error) => answer(message.id, error));
    process.on('uncaughtException', (error) => answer(message.id, error));
    serve(message);
    return;
  }
  const asked = waiting.get(message.id);
  if (asked === undefined) return;
  waiting.delete(message.id);
  if (message.error) asked.reject(new CapabilityError(message.error));
  else asked.resolve(message.result);
}

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

// Loading a module for the first time takes some milliseconds: where no call waits already, they
// are spent before it comes.
setTimeout(() => {
  if (started) return;
  const warm = `${process.env.HOME}/warm.js`;
  fs.writeFileSync(warm, 'export const tools = {};');
  loaded(warm).finally(() => fs.unlinkSync(warm));
}, 10);
