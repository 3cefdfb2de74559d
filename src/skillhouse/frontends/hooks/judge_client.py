"""What a coding agent starts for each hook event: asks the judge, and prints its answer.

`hook_client.py` runs it by `python -I -S`, and it imports builtin modules alone, as a call waits
for each start. Nothing of the current directory is imported. Where no judge answers in time, this
process becomes one. Its line in the client refuses where this ends with anything but 0.

A judge that works is waited for longer, as on a machine that is busy: if every hook became a judge
there, none would end in time.

    hook_client.py CLIENT MODE MOMENT DIRECTORY [VARIABLE]

DIRECTORY is that of the judge, VARIABLE the client's with the directory of the project.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys
import time

HUNG_SECONDS = 2.0
"""How long the judge may take without working: half of it is the time between two looks."""
ANSWER_SECONDS = 18.0
"""How long it may take while it works."""
OWN_SECONDS = 15
"""How long this process may take as the judge."""
ALL_SECONDS = 24.0
"""How long it may take in all: clients give up, and go on, after 30."""
FIRST_SECONDS = 8.0
"""As `HUNG_SECONDS`, for one that was just started."""
START_LOOKS = 150
"""How often a judge that was just started is looked for: some four seconds."""
EVENT_MAX = 16 * 1024 * 1024
"""Bytes of an event; more is refused."""
SOCKET = b"judge.sock"
PROGRAM, VARIABLES = b"program", b"variables"
"""Files of the directory: the words that start a judge, and the variables that it gets."""
SYSTEM_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the installation said no PATH."""


class NoJudgeError(Exception):
    """No judge of ours answers here."""


class LateJudgeError(NoJudgeError):
    """A process has the socket, and did not answer in time."""


def main(arguments: list[str]) -> int:
    begun = time.monotonic()
    client, mode, moment, place, *more = arguments
    event = _read(0, EVENT_MAX)
    variable = posix.environ.get(more[0].encode(), b"") if more else b""
    try:
        directory = posix.getcwdb()
    except OSError:
        directory = b"/"
    words = [client.encode(), mode.encode(), moment.encode()]
    head = b"\0".join([*words, directory, variable])
    handle = -1
    try:
        handle = _opened(place)
        answer = _asked(handle, head + b"\0" + event)
    except (OSError, NoJudgeError) as error:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        answer = b""
        if mode == "sandbox" and moment == "before" and handle >= 0:
            # Only a judge that stays can run the command.
            if not isinstance(error, LateJudgeError):
                # One that is late keeps the lock that another would need.
                _start(*_program(handle), place)
            answer = _waited(handle, head + b"\0" + event)
    if not answer:
        left = ALL_SECONDS - (time.monotonic() - begun)
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        _signal.setitimer(_signal.ITIMER_REAL, max(min(left, OWN_SECONDS), 0.1))
        _become(handle, place, [*words, directory, variable], event)
        return 2
    code, out, said = answer.split(b"\0", 2)
    _write(1, out)
    _write(2, said)
    return int(code)


def _opened(place: str) -> int:
    """Return the descriptor of the judge's directory: ours alone, and no link."""
    flags = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
    handle = posix.open(place, flags)
    found = posix.fstat(handle)
    if found.st_uid != posix.geteuid() or found.st_mode & 0o077:
        raise NoJudgeError
    return handle


def _asked(handle: int, data: bytes, seconds: float = HUNG_SECONDS) -> bytes:
    end = time.monotonic() + ANSWER_SECONDS
    judge, seen = 0, [b""]

    def look(number: int, frame: object) -> None:
        nonlocal seen
        worked, seen = seen, _processor_time(judge)
        if seen == worked or time.monotonic() > end:
            raise LateJudgeError

    _signal.signal(_signal.SIGALRM, look)
    _signal.setitimer(_signal.ITIMER_REAL, seconds / 2, seconds / 2)
    # Relative to the directory that was looked at, however long its path is.
    posix.fchdir(handle)
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    peer.connect(SOCKET)
    if hasattr(_socket, "SO_PEERCRED"):
        found = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        if int.from_bytes(found[4:8], sys.byteorder) != posix.geteuid():
            raise NoJudgeError
        judge = int.from_bytes(found[:4], sys.byteorder)
    peer.sendall(data)
    peer.shutdown(_socket.SHUT_WR)
    parts = []
    while part := peer.recv(65536):
        parts.append(part)
    answer = b"".join(parts)
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    if answer.count(b"\0") < 2:
        raise NoJudgeError
    return answer


def _processor_time(process: int) -> list[bytes]:
    """Return what a process has used so far; nothing where the system does not say."""
    try:
        file = posix.open(f"/proc/{process}/stat", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            return posix.read(file, 4096).rpartition(b")")[2].split()[11:13]
        finally:
            posix.close(file)
    except OSError:
        return []


def _waited(handle: int, data: bytes) -> bytes:
    """Return the answer of a judge that was just started, or is late; b"" where none comes."""
    try:
        for _ in range(START_LOOKS):
            time.sleep(0.02)
            try:
                return _asked(handle, data, FIRST_SECONDS)
            except (ConnectionError, FileNotFoundError):
                _signal.setitimer(_signal.ITIMER_REAL, 0)
    except (OSError, NoJudgeError):
        _signal.setitimer(_signal.ITIMER_REAL, 0)
    return b""


def _become(handle: int, place: str, words: list[bytes], event: bytes) -> None:
    """Judge this event in this process, and start a judge that stays; returns if neither can be."""
    if handle < 0:
        _write(2, b"skillhouse: the directory of its judge is not ours alone\n")
        return
    program, variables = _program(handle)
    given, made = posix.pipe()
    # Both load the same, and the client waits for this one: the other begins when it has ended.
    ended, lives = posix.pipe()
    if posix.fork() == 0:
        posix.close(given)
        posix.close(lives)
        posix.setsid()
        _be_quiet()
        _write(made, event)
        posix.close(made)
        posix.read(ended, 1)
        _start(program, variables, place)
        posix._exit(0)  # noqa: SLF001 - nothing else of this process is owed.
    posix.dup2(given, 0)
    for one in (given, made, ended):
        posix.close(one)
    posix.set_inheritable(lives, True)  # noqa: FBT003 - its signature.
    posix.chdir("/")
    # What is not caught ends the process, and so refuses; exec keeps the timer.
    posix.execve(program[0], [*program, b"once", place.encode(), *words], variables)


def _program(handle: int) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Return the words that start a judge, and its variables."""
    program = _file(handle, PROGRAM).split(b"\0")
    variables = dict(one.split(b"=", 1) for one in _file(handle, VARIABLES).split(b"\0") if one)
    # INVARIANT: nothing of this hook's own variables, which a project may have set for its client:
    # the judge that stays would keep them for every project.
    variables.setdefault(b"PATH", SYSTEM_PATH)
    return program, variables


def _start(program: list[bytes], variables: dict[bytes, bytes], place: str) -> None:
    """Start a judge that stays."""
    posix.chdir("/")
    null = posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
    quiet = [(posix.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    posix.posix_spawn(
        program[0], [*program, b"serve", place.encode()], variables, file_actions=quiet, setsid=True
    )


def _be_quiet() -> None:
    """Hold nothing open that the client waits for."""
    null = posix.open("/dev/null", posix.O_RDWR)
    for number in (0, 1, 2):
        posix.dup2(null, number)


def _file(handle: int, name: bytes) -> bytes:
    file = posix.open(name, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=handle)
    try:
        return _read(file, 1024 * 1024)
    finally:
        posix.close(file)


def _read(handle: int, most: int) -> bytes:
    parts, size = [], 0
    while part := posix.read(handle, 65536):
        parts.append(part)
        size += len(part)
        if size > most:
            _write(2, b"skillhouse: the event is too large to be judged\n")
            posix._exit(2)  # noqa: SLF001 - likewise.
    return b"".join(parts)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[posix.write(handle, data) :]


if __name__ == "__main__":
    posix._exit(main(sys.argv[1:]))  # noqa: SLF001 - likewise.
