"""Run by a bare interpreter between the runner and a command that asks for another user or for limits, and replaced by it.

Started by its path, with few and cheap imports: every millisecond here is one of each such command's. It exists because
the runner must not fork itself: with threads that is unsafe, and its memory makes it slow (see DESIGN.md). What cannot be
granted is written to the report pipe as place, errno and words, zeros between; the pipe closes unwritten when the command
takes over.

Arguments: the report's descriptor; cwd or nothing; "uid gid group..." or nothing; "name=limit ..." or nothing; the command.
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself costs 3 ms more, for its enums
import os
import resource
import sys

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


class Refused(Exception):
    """Place, and the system's error."""


def limit(given: str) -> None:
    name, _, value = given.partition("=")
    soft = int(value)
    try:
        resource.setrlimit(LIMITS[name], (soft, soft + CPU_GRACE_S if name == "cpu" else soft))
    except (OSError, ValueError, OverflowError) as error:
        raise Refused(f"rlimits.{name}", error) from None


def main() -> None:
    report = int(sys.argv[1])
    cwd, ids, limits = sys.argv[2:5]
    command = sys.argv[5:]
    os.set_inheritable(report, False)  # noqa: FBT003 - the standard library's own switch
    place = "user"
    try:
        uid, gid, *groups = [int(each) for each in ids.split()] or (-1, -1)
        if ids:
            os.setgroups(groups)
            os.setgid(gid)
        # A user's processes are counted when it is become: limits first, as root may raise them too.
        for each in limits.split():
            limit(each)
        if ids:
            os.setuid(uid)
        if cwd:
            place = "cwd"
            os.chdir(cwd)
        # The interpreter ignores these for itself; the command is to find them as everywhere.
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        place = "command"
        os.execvpe(command[0], command, os.environ)  # noqa: S606 - carrying out commands is the purpose
    except Refused as refused:
        tell(report, *refused.args)
    except OSError as error:
        tell(report, place, error)
    os._exit(127)


def tell(report: int, place: str, error: Exception) -> None:
    number = error.errno if isinstance(error, OSError) else 0
    words = (isinstance(error, OSError) and error.strerror) or str(error)
    os.write(report, f"{place}\0{number}\0{words}".encode())


if __name__ == "__main__":
    main()
