// What the self-test runs in a cell for JavaScript skills, as a skill of two tools.
//
// `look` tries what must fail and leaves all that it can; `left` is the next call, and tells what
// it finds of that.
'use strict';

const fs = require('fs');
const net = require('net');
const { spawn } = require('child_process');

const MARK = 'left-by-another-call';
const SCRATCH = ['/tmp', '/dev/shm'];
const FIXED = ['/', '/skill', '/usr', '/etc', '/dev', '/proc', '/sys'];

function first(names, message, action) {
  for (const name of names) {
    try {
      action(name);
      return `${name} ${message}`;
    } catch {
      // As it must be.
    }
  }
  return '';
}

function unreadable(told) {
  const names = [told.canary, '/etc/shadow', '/proc/1/environ', '/proc/self/mountinfo'];
  return first(names, 'could be read', (name) => fs.readFileSync(name));
}

function unwritable(told) {
  // The host says what arrived beside its canary.
  first([told.outside], '', (name) => fs.writeFileSync(name, 'probe'));
  const files = [...FIXED.map((name) => `${name}/probe`), __filename];
  return first(files, 'could be written', (name) => fs.closeSync(fs.openSync(name, 'a')));
}

function network(told) {
  return new Promise((resolve) => {
    const link = net.connect({ host: '127.0.0.1', port: told.tcp, timeout: 1000 });
    const end = (said) => { link.destroy(); resolve(said); };
    link.on('connect', () => end('reached the host'));
    link.on('error', () => end(''));
    link.on('timeout', () => end(''));
  });
}

function leave([program, ...words]) {
  for (const place of SCRATCH) first([`${place}/${MARK}`], '', (name) => fs.writeFileSync(name, ''));
  globalThis[MARK] = true;
  try {
    const child = spawn(program, words, { detached: true, stdio: 'ignore' });
    child.on('error', () => {});
    child.unref();
    return child.pid ? '' : 'no program can be started';
  } catch (error) {
    return `no program can be started: ${error.code}`;
  }
}

exports.tools = {
  look: async (told) => {
    const said = {
      outside_unreadable: unreadable(told),
      outside_unwritable: unwritable(told),
      network_refused: await network(told),
      existence_hidden: first([told.canary], 'could be seen', (name) => fs.statSync(name)),
    };
    return { ...said, programs_startable: leave(told.process) };
  },
  left: () => {
    const found = SCRATCH.filter((place) => fs.existsSync(`${place}/${MARK}`));
    if (globalThis[MARK]) found.push('memory');
    return { nothing_left: found.length ? `of an earlier call: ${found.join(', ')}` : '' };
  },
};
