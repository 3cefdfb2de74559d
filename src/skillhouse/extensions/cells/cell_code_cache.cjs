// V8's code cache of installed packages, for CommonJS: made once in a cell, read in each process.
//
// Nothing here is an import of a skill: cell_node.cjs uses `use`, and compile_cell.cjs uses `make`.
// The file is a line of JSON, {path: [start, end]} relative to `node_modules`, and then the data. V8
// refuses data of another version, of other flags or of a source of another length; the compiler of
// Node then does its work, as for each file that is not in it.
'use strict';

const fs = require('fs');
const Module = require('module');
const path = require('path');
const vm = require('vm');

const compile = Module.prototype._compile;
// Code from V8's cache cannot import at run time: a file that may do so is left to Node.
const IMPORTS = /\bimport\b[\s/*]*\(/;

function run(module, script, file) {
  const own = (name) => module.require(name);
  own.resolve = (name, options) => Module._resolveFilename(name, module, false, options);
  own.resolve.paths = (name) => Module._resolveLookupPaths(name, module);
  own.main = process.mainModule;
  own.extensions = Module._extensions;
  own.cache = Module._cache;
  const { exports } = module;
  return script.runInThisContext().call(exports, exports, own, module, file, path.dirname(file));
}

function scriptOf(source, filename, cachedData) {
  return new vm.Script(Module.wrap(source), { filename, cachedData });
}

function hook(root, given) {
  // A `given` that returns nothing leaves a file to Node.
  Module.prototype._compile = function compiled(source, file, format) {
    const isOurs = file.startsWith(`${root}/`) && format !== 'module';
    const isPlain = isOurs && !source.startsWith('#!') && !IMPORTS.test(source);
    const script = isPlain ? given(source, file, file.slice(root.length + 1)) : null;
    return script ? run(this, script, file) : compile.call(this, source, file, format);
  };
}

function use(cache) {
  const root = path.dirname(cache);
  const data = fs.readFileSync(cache);
  const start = data.indexOf('\n') + 1;
  const index = new Map(Object.entries(JSON.parse(data.toString('utf8', 0, start))));
  hook(root, (source, file, name) => {
    const place = index.get(name);
    if (!place) return null;
    const script = scriptOf(source, file, data.subarray(start + place[0], start + place[1]));
    return script.cachedDataRejected ? null : script;
  });
}

function make(root, names) {
  const scripts = new Map();
  hook(root, (source, file, name) => {
    try {
      const script = scriptOf(source, file);
      scripts.set(name, script);
      return script;
    } catch {
      return null;
    }
  });
  const missing = [];
  for (const name of names) {
    try {
      require(path.join(root, name));
    } catch {
      missing.push(name);
    }
  }
  const index = {};
  const parts = [];
  let size = 0;
  for (const [name, script] of scripts) {
    const part = script.createCachedData();
    index[name] = [size, size + part.length];
    parts.push(part);
    size += part.length;
  }
  const head = Buffer.from(`${JSON.stringify(index)}\n`);
  return { data: Buffer.concat([head, ...parts]).toString('base64'), files: scripts.size, missing };
}

module.exports = { make, use };
