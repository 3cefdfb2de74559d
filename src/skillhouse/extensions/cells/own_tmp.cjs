// Gives a call in Node its own /tmp and /dev/shm where nothing can be mounted there: see own_tmp.py.
//
// Node loads it before the cell. A path is tried as it is first, so that nothing here hides what
// could be reached; Landlock is what refuses it, and allows the directory that TMPDIR names.
'use strict';

const fs = require('fs');
const { syncBuiltinESMExports } = require('module');

const SHARED = ['/tmp', '/dev/shm'];
const RETRIED = new Set(['EACCES', 'ENOENT', 'EPERM', 'EROFS', 'EXDEV']);
const NAMES = [
  'access', 'appendFile', 'copyFile', 'exists', 'link', 'lstat', 'mkdir', 'mkdtemp', 'open',
  'opendir', 'readFile', 'readdir', 'readlink', 'realpath', 'rename', 'rmdir', 'stat',
  'statfs', 'symlink', 'truncate', 'unlink', 'writeFile',
];
// These are made of several others, which find the call's directory by themselves: all or none does.
const COMPOUND = ['cp', 'rm'];
const place = process.env.TMPDIR;
const { lstatSync } = fs;

function own(value) {
  const text = value instanceof URL && value.protocol === 'file:' ? decodeURI(value.pathname) : value;
  if (typeof text !== 'string' && !Buffer.isBuffer(text)) return value;
  const path = String(text);
  const shared = SHARED.find((name) => path === name || path.startsWith(`${name}/`));
  return shared ? place + path.slice(shared.length) : value;
}

function ownArguments(given) {
  const words = given.map((value, at) => (at < 2 ? own(value) : value));
  return words.some((value, at) => value !== given[at]) ? words : null;
}

function isRetried(error) {
  return Boolean(error) && RETRIED.has(error.code);
}

const sync = {
  apply(original, self, given) {
    const words = ownArguments(given);
    if (!words) return Reflect.apply(original, self, given);
    let refusal = null;
    try {
      const result = Reflect.apply(original, self, given);
      // `existsSync` throws nothing, and others only where they were not asked to.
      const isAbsent = result === false || (result === undefined && given[1]?.throwIfNoEntry === false);
      if (!isAbsent) return result;
    } catch (error) {
      if (!isRetried(error)) throw error;
      refusal = error;
    }
    try {
      return Reflect.apply(original, self, words);
    } catch (error) {
      throw refusal || error;
    }
  },
};

const called = {
  apply(original, self, given) {
    const words = ownArguments(given);
    const back = given[given.length - 1];
    if (!words || typeof back !== 'function') return Reflect.apply(original, self, given);
    const again = (...found) => back(...found);
    const first = (...found) => {
      if (!isRetried(found[0]) && found[0] !== false) return back(...found);
      const second = (...others) => (others[0] instanceof Error ? again(...found) : again(...others));
      return Reflect.apply(original, self, [...words.slice(0, -1), second]);
    };
    return Reflect.apply(original, self, [...given.slice(0, -1), first]);
  },
};

const promised = {
  apply(original, self, given) {
    const words = ownArguments(given);
    const first = Reflect.apply(original, self, given);
    if (!words) return first;
    return first.catch((refusal) => {
      if (!isRetried(refusal)) throw refusal;
      return Reflect.apply(original, self, words).catch(() => { throw refusal; });
    });
  },
};

function isThere(path) {
  try {
    lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

const compound = {
  apply(original, self, given) {
    const words = ownArguments(given);
    const isOwn = words && words.some((value, at) => value !== given[at] && !isThere(given[at]));
    return Reflect.apply(original, self, isOwn ? words : given);
  },
};

// Landlock does not refuse it: the real directory would be of no use.
process.chdir = new Proxy(process.chdir, {
  apply(original, self, [path]) {
    const there = own(path);
    return Reflect.apply(original, self, [there === path || !isThere(there) ? path : there]);
  },
});
for (const name of COMPOUND) {
  fs[name] = new Proxy(fs[name], compound);
  fs[`${name}Sync`] = new Proxy(fs[`${name}Sync`], compound);
  fs.promises[name] = new Proxy(fs.promises[name], compound);
}
for (const name of NAMES) {
  if (fs[name]) fs[name] = new Proxy(fs[name], called);
  if (fs[`${name}Sync`]) fs[`${name}Sync`] = new Proxy(fs[`${name}Sync`], sync);
  if (fs.promises[name]) fs.promises[name] = new Proxy(fs.promises[name], promised);
}
syncBuiltinESMExports();
