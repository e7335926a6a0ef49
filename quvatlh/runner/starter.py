"""Starts processes for the runner: a bare interpreter of its own, small enough that forking costs little.

The runner runs it by its path. A request is one message: the command and what it is to become, with its three files. The
answer comes once the command has taken over, or says where it failed: place, errno and words, zeros between. What is
started is the runner's child, not ours (CLONE_PARENT), so the runner watches and reaps it. The imports are few and cheap:
each page of this process is one more to copy at a start.
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself brings its enums
import _socket
import ctypes
import errno
import gc
import os
import resource
import sys
from typing import Any, NoReturn

LIMITS = {
    "memory": resource.RLIMIT_AS,
    "data": resource.RLIMIT_DATA,
    "stack": resource.RLIMIT_STACK,
    "core": resource.RLIMIT_CORE,
    "fsize": resource.RLIMIT_FSIZE,
    "cpu": resource.RLIMIT_CPU,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}
CPU_GRACE_S = 5
"""Between XCPU, which a program may answer, and KILL."""
REQUEST_BYTES_MAX = 65_536
"""What is larger comes as a file, the fourth."""
REPORT_BYTES_MAX = 4_096
FILES_MAX = 4
MSG_CMSG_CLOEXEC = 0x40000000

_SYS_CLONE3 = 435
_CLONE_PARENT = 0x8000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.PyDLL(None, use_errno=True)
_CLONE_ARGS = (ctypes.c_uint64 * 8)(_CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0)


class Refused(Exception):
    """Place, and the system's error."""


def main() -> None:
    parent = int(sys.argv[2])
    link = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(link.fileno(), False)  # noqa: FBT003 - the standard library's own switch
    # What is set here is what the commands begin with.
    for number in (*range(1, 32), *range(_signal.SIGRTMIN, _signal.SIGRTMAX + 1)):
        if number not in {_signal.SIGKILL, _signal.SIGSTOP}:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    gc.disable()
    room = _socket.CMSG_SPACE(FILES_MAX * 4)
    while True:
        data, extra, _flags, _address = link.recvmsg(REQUEST_BYTES_MAX, room, MSG_CMSG_CLOEXEC)
        if not data:
            return
        files = [int.from_bytes(each[2][n : n + 4], sys.byteorder) for each in extra for n in range(0, len(each[2]), 4)]
        pid, report = serve(data, files, parent)
        link.send(pid.to_bytes(4, "big") + report)


def serve(data: bytes, files: list[int], parent: int) -> tuple[int, bytes]:
    """The new process, if there is one, and what kept it from its command, if anything did."""
    pid, seen, said = 0, -1, -1
    try:
        if len(files) == FILES_MAX:
            data = os.pread(files[3], os.fstat(files[3]).st_size, 0)
        elif len(files) != FILES_MAX - 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        seen, said = os.pipe2(os.O_CLOEXEC)
        pid = clone()
        if pid == 0:
            become(unpacked(data), files, said, parent)
        os.close(said)
        said = -1
        return pid, os.read(seen, REPORT_BYTES_MAX)
    except OSError as error:
        return pid, told("start", error)
    finally:
        for fd in (*files, seen, said):
            if fd >= 0:
                os.close(fd)


def unpacked(data: bytes) -> tuple[Any, ...]:
    """A request: zeros between its fields, before each list its length. See starting.Job."""
    fields = iter(data.split(b"\0"))
    argv, env = ([next(fields) for _ in range(int(next(fields)))] for _ in range(2))
    cwd, ids, limits, with_parent, group = fields
    return (
        argv,
        dict(each.split(b"=", 1) for each in env),
        cwd,
        tuple(int(each) for each in ids.split()),
        tuple(each.decode().split("=") for each in limits.split()),
        with_parent,
        group,
    )


def clone() -> int:
    """fork, but to a child of our parent."""
    pid: int = _LIBC.syscall(_SYS_CLONE3, _CLONE_ARGS, 64)
    if pid >= 0:
        return pid
    number = ctypes.get_errno()
    if number not in {errno.ENOSYS, errno.EPERM}:
        raise OSError(number, os.strerror(number))
    return by_two_forks()


def by_two_forks() -> int:
    """Where a container forbids clone3: a grandchild whose parent ends becomes a child of the runner, a subreaper."""
    seen, said = os.pipe2(os.O_CLOEXEC)
    between = os.fork()
    if between == 0:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.write(said, pid.to_bytes(4, "big"))
            os._exit(0)
        while os.getppid() == parent:
            os.sched_yield()
        return 0
    os.close(said)
    os.waitpid(between, 0)
    pid = int.from_bytes(os.read(seen, 4), "big")
    os.close(seen)
    return pid


def become(job: tuple[Any, ...], files: list[int], said: int, parent: int) -> NoReturn:
    """In the new process: take everything on, and the command's place."""
    argv, env, cwd, ids, limits, with_parent, group = job
    place = "start"
    try:
        os.setsid()
        for number in range(3):
            os.dup2(files[number], number)
        if group:
            place = "rlimits.memory"
            join(group)
        place = "user"
        take_on(ids, limits)
        if with_parent:  # forgotten by the kernel where the user changes, so not before
            _LIBC.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(127)
        if cwd:
            place = "cwd"
            os.chdir(cwd)
        place = "command"
        execute(argv, env)
    except Refused as refused:
        os.write(said, told(*refused.args))
    except (OSError, ValueError) as error:
        os.write(said, told(place, error))
    except BaseException:  # noqa: BLE001 - two of us must not go on
        os.write(said, told("start", OSError(errno.ENOMEM, "not started")))
    os._exit(127)


def join(group: bytes) -> None:
    fd = os.open(group + b"/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    os.write(fd, b"0")
    os.close(fd)


def take_on(ids: tuple[int, ...], limits: tuple[tuple[str, str], ...]) -> None:
    """A user's processes are counted when it is become: limits before it, as root may raise them too."""
    if ids:
        os.setgroups(ids[2:])
        os.setgid(ids[1])
    for name, value in limits:
        limit(name, int(value))
    if ids:
        os.setuid(ids[0])


def limit(name: str, soft: int) -> None:
    try:
        resource.setrlimit(LIMITS[name], (soft, soft + CPU_GRACE_S if name == "cpu" else soft))
    except (OSError, ValueError, OverflowError) as error:
        raise Refused(f"rlimits.{name}", error) from None


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """As execvpe, which imports what we do without."""
    program = argv[0]
    if b"/" in program:
        os.execve(program, argv, env)  # noqa: S606 - carrying out commands is the purpose
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for directory in env.get(b"PATH", os.defpath.encode()).split(b":"):
        try:
            os.execve((directory or b".") + b"/" + program, argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            failure = error
    raise failure


def told(place: str, error: Exception) -> bytes:
    number = error.errno if isinstance(error, OSError) else 0
    words = (isinstance(error, OSError) and error.strerror) or str(error)
    return f"{place}\0{number or 0}\0{words}".encode()[:REPORT_BYTES_MAX]


if __name__ == "__main__":
    main()
