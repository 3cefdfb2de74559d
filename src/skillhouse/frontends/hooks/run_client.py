"""Runs one command in the sandbox of skillhouse: hands its descriptors and a ticket to the judge.

A hook in mode `sandbox` rewrites a command into a call of `hook_runner.py`, which runs this by
`python -I -S`; it imports builtin modules alone. Without a valid ticket nothing runs. It passes
signals on, and when it is gone, so is the command.

    hook_runner.py DIRECTORY TICKET COMMAND
    hook_runner.py DIRECTORY TICKET

The second prints where a line ended that only a shell could run.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys

SOCKET = b"run.sock"
FAILED = 125
"""The exit code where the command was not run, or how it ended is not known."""
SIGNALS = (1, 2, 3, 10, 12, 15)
"""HUP, INT, QUIT, USR1, USR2 and TERM."""


def main(arguments: list[str]) -> int:
    if len(arguments) == 2:
        return _print_end(*arguments)
    if len(arguments) != 3:
        return _failed("expected DIRECTORY TICKET COMMAND, as a hook of skillhouse writes them")
    place, ticket, command = arguments
    try:
        here = posix.open(".", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
        peer = _connected(place)
        message = b"\0".join((_bytes(ticket), _bytes(command)))
        _hand_over(peer, message, (0, 1, 2, here))
    except OSError as error:
        return _failed(f"no judge of skillhouse answers ({error.strerror}); repeat the call")
    for number in SIGNALS:
        _signal.signal(number, lambda number, _: _passed(peer, number))
    code, mark, text = _answer(peer).partition(b"\0")
    if not mark or not code.isdigit():
        _write(b"skillhouse: the judge of skillhouse ended, and the command with it\n")
        return FAILED
    if text:
        _write(text)
    return int(code)


def _print_end(place: str, ticket: str) -> int:
    """Print where a command ended, or where this process is."""
    here = posix.getcwdb()
    try:
        peer = _connected(place)
        message = _bytes(ticket)
        peer.sendall(len(message).to_bytes(4, "big") + message)
        code, _, text = _answer(peer).partition(b"\0")
        here = text if code == b"0" and text else here
    except OSError as error:
        _failed(str(error.strerror))
    posix.write(1, here + b"\n")
    return 0


def _answer(peer: "_socket.socket") -> bytes:
    """Return what the judge says, up to its end; nothing where it broke off."""
    parts = []
    try:
        while part := peer.recv(65536):
            parts.append(part)
    except OSError:
        return b""
    return b"".join(parts)


def _connected(place: str) -> "_socket.socket":
    """Return a connection to a judge of this user, in a directory of ours alone."""
    flags = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
    handle = posix.open(place, flags)
    found = posix.fstat(handle)
    if found.st_uid != posix.geteuid() or found.st_mode & 0o077:
        raise OSError(1, "its directory is not this user's alone")
    # Relative to the directory that was looked at, however long its path is.
    posix.fchdir(handle)
    if posix.lstat(SOCKET).st_mode & 0o170000 != 0o140000:
        raise OSError(1, "its socket is none")
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    peer.connect(SOCKET)
    user = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)[4:8]
    if int.from_bytes(user, sys.byteorder) != posix.geteuid():
        raise OSError(1, "it is another user's")
    return peer


def _hand_over(peer: "_socket.socket", message: bytes, descriptors: tuple[int, ...]) -> None:
    data = b"".join(one.to_bytes(4, sys.byteorder) for one in descriptors)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, data)]
    # The length comes with the descriptors; a command may be longer than one message.
    peer.sendmsg([len(message).to_bytes(4, "big")], rights)
    peer.sendall(message)


def _bytes(word: str) -> bytes:
    """Return a word as it was given to this process."""
    return word.encode(sys.getfilesystemencoding(), "surrogateescape")


def _passed(peer: "_socket.socket", number: int) -> None:
    try:
        peer.send(bytes([number]))
    except OSError:
        _write(b"skillhouse: the judge ended\n")


def _failed(reason: str) -> int:
    _write(f"skillhouse: nothing was run: {reason}\n".encode("utf-8", "replace"))
    return FAILED


def _write(data: bytes) -> None:
    while data:
        data = data[posix.write(2, data) :]


if __name__ == "__main__":
    posix._exit(main(sys.argv[1:]))  # noqa: SLF001 - nothing else of this process is owed.
