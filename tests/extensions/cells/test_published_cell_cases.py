"""The cases that other sandboxes publish, tried on the code of skills in both languages."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.cells.lab import Lab, lab, language, make
from tests.sandbox.places import own, started, still_running

from skillhouse.extensions.cells import CellSpec, Executor
from skillhouse.sandbox import SandboxError

pytestmark = pytest.mark.slow

__all__ = ["lab", "language"]

PYTHON = """
import ctypes, errno, os, pwd, signal, socket, stat, subprocess, sys, time

def tried(*actions):
    found = []
    for action in actions:
        try:
            action()
            found.append("worked")
        except OSError as error:
            found.append(errno.errorcode.get(error.errno, type(error).__name__))
    return found

def tool(params, context):
BODY

tools = {"tool": tool}
"""
NODE = """
const fs = require('fs');
const net = require('net');
const dgram = require('dgram');
const os = require('os');
const dns = require('dns').promises;
const { spawn, spawnSync } = require('child_process');

const tried = (...actions) => actions.map((action) => {
  try { action(); return 'worked'; } catch (error) { return error.code || String(error); }
});
const connected = (where) => new Promise((resolve) => {
  const link = net.connect(where);
  link.setTimeout(2000, () => { link.destroy(); resolve('timeout'); });
  link.on('connect', () => { link.destroy(); resolve('worked'); });
  link.on('error', (error) => resolve(error.code));
});
exports.tools = { tool: async (params, context) => {
BODY
} };
"""


def skill(lab: Lab, language: str, python: str, node: str) -> CellSpec:
    """Return a skill whose one tool does this in its language."""
    if language == "javascript":
        return make(lab.place, NODE.replace("BODY", node), language=language)
    inner = "\n".join(f"    {line}" for line in python.strip("\n").splitlines())
    return make(lab.place, PYTHON.replace("BODY", inner))


def value(lab: Lab, language: str, python: str, node: str, **options: Any) -> Any:
    """Return what the tool returns."""
    done = lab.call(skill(lab, language, python, node), timeout=20.0, **options)
    assert done.kind == "ok", done
    return done.value


def test_a_unix_socket_is_not_made(lab: Lab, language: str) -> None:
    with socket.socket(socket.AF_UNIX) as host:
        name = str(lab.place / "host.sock")
        host.bind(name)
        host.listen()
        python = f"""
return tried(
    lambda: socket.socket(socket.AF_UNIX).connect({name!r}),
    lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
    lambda: socket.socket(fileno=os.dup(3)).connect({name!r}),
)"""
        node = f"return [await connected({name!r}), await connected('\\0abstract')];"
        found = value(lab, language, python, node)
        if language == "python":
            assert found[:3] == ["EAFNOSUPPORT", "EAFNOSUPPORT", "EPERM"]
            # The core's own socket, turned elsewhere: it is connected, or there is no such name.
            assert found[3] in ("EISCONN", "ENOENT", "EINVAL")
        else:
            assert set(found) <= {"EAFNOSUPPORT", "EINVAL", "EACCES"}


def test_no_host_is_reached_by_any_protocol(lab: Lab, language: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        python = f"""
here, far = ("127.0.0.1", {port}), ("192.0.2.1", 80)
return [*tried(
    lambda: socket.create_connection(here, 2),
    lambda: socket.create_connection(far, 2),
    lambda: socket.create_connection(("2001:db8::1", 443), 2),
    lambda: socket.create_connection(("192.0.2.1", 22), 2),
    lambda: socket.socket(2, 1, 262).connect(far),
    lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)),
    lambda: socket.getaddrinfo("example.com", 443),
), subprocess.run(["bash", "-c", "exec 5<>/dev/tcp/192.0.2.1/80"], stderr=-3).returncode]"""
        node = f"""
  const udp = new Promise((resolve) => {{
    const one = dgram.createSocket('udp4');
    one.send('x', 53, '192.0.2.1', (error) => {{
      one.close();
      resolve(error ? error.code : 'worked');
    }});
  }});
  let web;
  try {{ await fetch('http://192.0.2.1/'); web = 'worked'; }} catch (error) {{ web = 'refused'; }}
  let name;
  try {{ await dns.lookup('example.com'); name = 'worked'; }} catch (error) {{ name = error.code; }}
  return [await connected({{ host: '127.0.0.1', port: {port} }}),
    await connected({{ host: '192.0.2.1', port: 80 }}),
    await connected({{ host: '2001:db8::1', port: 443 }}), await udp, name, web,
    spawnSync('bash', ['-c', 'exec 5<>/dev/tcp/192.0.2.1/80']).status];"""
        found = value(lab, language, python, node)
        assert found[-1] == 1
        assert "worked" not in found
        assert "timeout" not in found
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_nothing_is_written_outside_of_the_scratch(lab: Lab, language: str) -> None:
    outside = str(lab.place / "outside")
    names = [outside, "/x", "/skill/x", "/usr/x", "/etc/x", "/dev/x", "/var/x", "/cell", "/.git/x"]
    python = f"return tried(*(lambda name=name: open(name, 'a') for name in {names!r}))"
    node = f"return tried(...{names!r}.map((name) => () => fs.appendFileSync(name, 'x')));"
    spec = skill(lab, language, python, node)
    found = lab.call(spec).value
    assert set(found[1:]) <= {"EROFS", "ENOENT", "EACCES"}
    assert not Path(outside).exists()
    assert {path.name for path in spec.directory.iterdir()} == {spec.entry}


def test_processes_have_their_own_numbers(lab: Lab, language: str) -> None:
    with subprocess.Popen(("sleep", "608.25")) as beside:
        python = f"return [os.getpid(), *tried(lambda: os.kill({beside.pid}, 9))]"
        node = f"return [process.pid, ...tried(() => process.kill({beside.pid}, 'SIGKILL'))];"
        number, said = value(lab, language, python, node)
        assert (number < 10, said) == (True, "ESRCH")
        assert beside.poll() is None
        beside.kill()


def test_a_symbolic_link_leads_nowhere(lab: Lab, language: str) -> None:
    secret = lab.place / "secret"
    secret.write_text("canary")
    python = f"""
os.symlink({str(secret)!r}, "/tmp/link")
os.symlink("/proc/1/root/etc/shadow", "/tmp/other")
return tried(lambda: open("/tmp/link").read(), lambda: open("/tmp/other").read())"""
    node = f"""
  fs.symlinkSync({str(secret)!r}, '/tmp/link');
  fs.symlinkSync('/proc/1/root/etc/shadow', '/tmp/other');
  return tried(() => fs.readFileSync('/tmp/link'), () => fs.readFileSync('/tmp/other'));"""
    assert value(lab, language, python, node) == ["ENOENT", "ENOENT"]
    # A skill that brings one is not run at all.
    directory = lab.place / "skill"
    spec = skill(lab, language, "return 1", "return 1;")
    (directory / "link").symlink_to(secret)
    with pytest.raises(SandboxError) as caught:
        lab.call(spec)
    assert caught.value.code in ("skill-unreadable", "skill-changed")


def test_background_processes_end_with_the_call(lab: Lab, language: str) -> None:
    python = """
for _ in range(3):
    subprocess.Popen(["setsid", "sleep", "609.25"], stdout=-3, stderr=-3)
subprocess.Popen(["sh", "-c", "(setsid nohup sleep 609.25 &) &"], stdout=-3, stderr=-3)
return 1"""
    node = """
  for (let n = 0; n < 3; n += 1) {
    spawn('setsid', ['sleep', '609.25'], { detached: true, stdio: 'ignore' }).unref();
  }
  spawnSync('sh', ['-c', '(setsid nohup sleep 609.25 >/dev/null 2>&1 &) &'], { stdio: 'ignore' });
  return 1;"""

    mark = own(609)
    python, node = python.replace("609.25", mark), node.replace("609.25", mark)

    async def scene(executor: Executor) -> tuple[Any, int]:
        done = await lab.ask(executor, skill(lab, language, python, node))
        return done.value, len(still_running(mark, seconds=2))

    assert lab.run(scene) == (1, 0)


CORE = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from skillhouse.sandbox import SandboxLevel, SandboxStatus
from tests.extensions.cells.lab import Core, Lab, make
class Says(Core):
    def log(self, text):
        print(text, flush=True)
place = Path({place!r})
lab = Lab(SandboxStatus(level=SandboxLevel({level!r})), place)
lab.core = Says()
lab.call(make(place, {source!r}, language={language!r}), timeout=60)
"""


def test_sigterm_to_the_core_ends_its_cells(lab: Lab, language: str) -> None:
    # Another process may run this test at the same time.
    mark = f"610.{os.getpid()}"
    python = f"subprocess.Popen(['sleep', '{mark}'])\ncontext.log('began')\ntime.sleep({mark})"
    node = f"spawn('sleep', ['{mark}']); context.log('began'); await new Promise(() => {{}});"
    spec = skill(lab, language, python, node)
    script = CORE.format(
        root=str(Path(__file__).parents[2]),
        place=str(lab.place),
        level=str(lab.status.level),
        source=(spec.directory / spec.entry).read_text(),
        language=language,
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as core:
        assert core.stdout is not None
        assert core.stdout.readline() == b"began\n"
        assert started(mark)
        core.send_signal(signal.SIGTERM)
        core.wait(10)
    assert still_running(mark) == []


def test_a_timeout_leaves_no_orphan(lab: Lab, language: str) -> None:
    python = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM INT HUP; sleep 611.25; sleep 611.25"])
time.sleep(611.25)"""
    node = """
  process.on('SIGTERM', () => {});
  spawn('sh', ['-c', "trap '' TERM INT HUP; sleep 611.25; sleep 611.25"], { detached: true });
  await new Promise((resolve) => setTimeout(resolve, 611250));"""
    mark = own(611)
    python, node = python.replace("611.25", mark), node.replace("611.25", mark)
    done = lab.call(skill(lab, language, python, node), timeout=0.5)
    assert done.kind == "timeout"
    assert still_running(mark) == []


def test_privileges_are_not_gained(lab: Lab, language: str) -> None:
    python = """
libc = ctypes.CDLL(None)
words = [["su", "-c", "id"], ["unshare", "-Ur", "id"], ["mount", "-t", "tmpfs", "x", "/tmp"]]
gained = [done.stdout for done in (
    subprocess.run(each, capture_output=True, text=True, stdin=-3) for each in words)]
return [os.getuid(), libc.prctl(39, 0, 0, 0, 0), "".join(gained), *tried(
    lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.chroot("/tmp"))]"""
    node = """
  const words = [['su', '-c', 'id'], ['unshare', '-Ur', 'id'],
    ['mount', '-t', 'tmpfs', 'x', '/tmp']];
  const gained = words.map(([name, ...rest]) => spawnSync(name, rest, { encoding: 'utf8' }).stdout);
  return [process.getuid(), 1, gained.join(''), ...tried(() => process.setuid(0),
    () => process.setgid(0)), 'EPERM'];"""
    user, has_no_new_privs, gained, *said = value(lab, language, python, node)
    assert (user, has_no_new_privs, gained) == (65534, 1, "")
    assert set(said) <= {"EPERM", "EINVAL"}


def test_special_files(lab: Lab, language: str) -> None:
    python = """
return [*tried(
    lambda: os.mknod("/tmp/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3)),
    lambda: os.mknod("/tmp/disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0)),
    lambda: open("/tmp/file", "w").close() or os.chmod("/tmp/file", 0o4755),
    lambda: os.open("/tmp/other", os.O_CREAT | os.O_WRONLY, 0o6755),
    lambda: os.mkfifo("/skill/pipe"),
), os.path.exists("/dev/tty") or os.path.exists("/dev/mem") or os.path.exists("/dev/kvm")]"""
    node = """
  fs.writeFileSync('/tmp/file', '');
  const made = (...words) => tried(() => {
    const { status } = spawnSync(words[0], words.slice(1));
    if (status) throw Object.assign(new Error(), { code: 'EPERM' });
  })[0];
  return [made('mknod', '/tmp/null', 'c', '1', '3'), made('mknod', '/tmp/disk', 'b', '254', '0'),
    ...tried(() => fs.chmodSync('/tmp/file', 0o4755), () => fs.openSync('/tmp/other', 'w', 0o6755)),
    made('mkfifo', '/skill/pipe'),
    ['tty', 'mem', 'kvm'].some((name) => fs.existsSync(`/dev/${name}`))];"""
    *said, has_devices = value(lab, language, python, node)
    assert said[:4] == ["EPERM"] * 4
    assert said[4] in ("EROFS", "EPERM")
    assert has_devices is False


def test_code_runs_without_proc(lab: Lab, language: str) -> None:
    python = """
import threading
ran = []
one = threading.Thread(target=lambda: ran.append(1)); one.start(); one.join()
said = subprocess.run(["sh", "-c", "echo $((1 + 1))"], capture_output=True, text=True)
return [os.listdir("/") and os.path.exists("/proc"), said.stdout, ran, os.cpu_count() > 0]"""
    node = """
  const said = spawnSync('sh', ['-c', 'echo $((1 + 1))'], { encoding: 'utf8' });
  const { Worker } = require('worker_threads');
  const ran = await new Promise((resolve) => {
    new Worker("require('worker_threads').parentPort.postMessage([1])", { eval: true })
      .on('message', resolve);
  });
  const used = process.memoryUsage();
  return [fs.existsSync('/proc'), said.stdout, ran, os.cpus().length > 0
    && used.rss > used.heapUsed && process.memoryUsage.rss() > 1e6 && os.totalmem() > 0];"""
    assert value(lab, language, python, node) == [False, "2\n", [1], True]


def test_what_may_be_written_is(lab: Lab, language: str) -> None:
    names = ["/dev/null", "/tmp/file", "/dev/shm/file"]
    python = f"return tried(*(lambda name=name: open(name, 'w').write('x') for name in {names!r}))"
    node = f"return tried(...{names!r}.map((name) => () => fs.writeFileSync(name, 'x')));"
    assert value(lab, language, python, node) == ["worked"] * 3


def test_locks_between_processes_work(lab: Lab) -> None:
    python = """
import multiprocessing
kind = multiprocessing.get_context("fork")
lock, found = kind.Lock(), kind.Value("i", 0)
def work():
    with lock:
        found.value += 1
made = [kind.Process(target=work) for _ in range(2)]
for one in made: one.start()
for one in made: one.join()
return found.value"""
    assert value(lab, "python", python, "") == 2


def test_the_user_has_a_name(lab: Lab, language: str) -> None:
    python = "return pwd.getpwuid(os.getuid()).pw_name"
    assert value(lab, language, python, "return os.userInfo().username;") == "nobody"
