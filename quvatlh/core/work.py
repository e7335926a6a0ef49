"""The `work` of a task: plain data in, one frozen description out, or every fault at once with its path.

Here is what may be asked for and how large it may be. Not here: reading text (YAML and JSON become plain data elsewhere),
and whether a program, directory or user exists, which only the machine that runs it can say.

An argument is the scalar as it is written: 8080, true and 0.5 are taken for "8080", "true" and "0.5".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from quvatlh.core import model
from quvatlh.core.calls import Call, call_of
from quvatlh.core.limits import (
    INTEGER_MAX,
    WORK_BYTES_MAX,
    WORK_COMMANDS_MAX,
    WORK_DEPTH_MAX,
    WORK_NODES_MAX,
    WORK_STRING_BYTES_MAX,
)

FAULTS_MAX = 50
"""More are not listed: who has fifty faults has one."""

SHELL = ("/bin/sh", "-c")
FORMS = ("command", "shell", "commands")
OTHER_FORMS = ("python", "http", "warm", "pull")
"""Known, but not native commands: their adapters have their own checks."""
FIELDS = (*FORMS, "env", "cwd", "user", "stdin", "rlimits")

_ENV_NAME = re.compile(r"[^=\x00]{1,256}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}\$?")
_SIZE = re.compile(r"(\d{1,18})\s?(?:([KMGT])(?:iB|B)?)?")
_DURATION = re.compile(r"(\d{1,9})([smhd]?)")
_SIZE_FACTORS = {None: 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Fault:
    path: str
    """`commands[1][0]`, `env.PATH`; empty when the whole is at fault."""
    message: str
    is_unknown: bool = False
    """A name that stands for nothing."""

    def __str__(self) -> str:
        return f"{self.path or 'work'}: {self.message}"


class WorkError(ValueError):
    """The work was not taken. Nothing was changed."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


class Work(Struct, frozen=True, array_like=True, gc=False):
    """What a worker carries out: native commands, one after the other, or a call into a warm process."""

    commands: tuple[tuple[str, ...], ...]
    """At least one, unless there is a call; each at least the program. A shell text stands here as the shell's own command."""
    env: tuple[tuple[str, str], ...] = ()
    """Over the worker's environment. No name begins with QUVATLH_."""
    cwd: str | None = None
    """Absolute. None: where the worker runs."""
    user: str | None = None
    """Name or number. None: the worker's own."""
    stdin: str | None = None
    """None: the payload if there is one, else nothing."""
    rlimits: tuple[tuple[str, int], ...] = ()
    """By name as in RLIMITS; bytes, seconds or counts. For each process, not for the tree."""
    call: Call | None = None
    """What is called in place of commands, of which there are then none."""


def _size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a number of bytes or a size such as 512M")
    return int(match[1]) * _SIZE_FACTORS[match[2]]


def _seconds(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be whole seconds or a duration such as 10m")
    return int(match[1]) * _SECONDS[match[2]]


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("must be a whole number")  # noqa: TRY004 - a fault like the others
    return value


RLIMITS: Mapping[str, Callable[[object], int]] = {
    "memory": _size,
    "data": _size,
    "stack": _size,
    "core": _size,
    "fsize": _size,
    "cpu": _seconds,
    "nofile": _count,
    "nproc": _count,
}
"""`memory` is address space: the limit that the kernel keeps without cgroups."""


def check(data: object) -> Work:
    """The description, or WorkError with all faults."""
    _bounded(data)
    if not isinstance(data, Mapping):
        raise WorkError([Fault("", f"must be a mapping with one of {', '.join(FORMS)}")])
    checked = _Check()
    work = checked.work(data)
    if checked.faults:
        raise WorkError(checked.faults[:FAULTS_MAX])
    _bounded(_plain(work))  # numbers have become text, and texts commands of the shell
    return work


def runnable(work: model.Work) -> Work:
    """What the door took, as the runners know it; WorkError if this version cannot carry it out."""
    if work.adapter not in {"python", "warm"}:
        return native(work)
    try:
        call = call_of(work)
    except ValueError as error:
        raise WorkError([Fault("", str(error))]) from None
    if work.env or work.rlimits:
        return Work((), tuple(work.env.items()), work.cwd, work.user, work.stdin, tuple(work.rlimits.items()), call)
    return Work((), (), work.cwd, work.user, work.stdin, (), call)


def native(work: model.Work) -> Work:
    """What the door took, as the runner knows it; WorkError if it is no native command. Its size is not asked again."""
    if work.commands is not None:
        commands = work.commands
    elif work.command is not None:
        commands = (work.command,)
    elif work.shell is not None:
        commands = ((*SHELL, work.shell),)
    else:
        commands = ()
    if not commands or not all(commands):
        raise WorkError([Fault("", "is not a native command and cannot be run by this version")])
    surroundings = work.cwd, work.user, work.stdin
    return Work(commands, tuple(work.env.items()), *surroundings, tuple(work.rlimits.items()))


def _plain(work: Work) -> dict[str, object]:
    """In the longest of the forms that it may be kept in."""
    texts = {"cwd": work.cwd, "user": work.user, "stdin": work.stdin}
    return {
        "commands": work.commands,
        "env": dict(work.env),
        "rlimits": dict(work.rlimits),
        **{name: text for name, text in texts.items() if text is not None},
    }


def _bounded(data: object) -> None:
    """Refuse by size before anything recurses: whatever is shared or refers to itself counts each time it is met."""
    nodes = size = 0
    waiting: list[tuple[object, int]] = [(data, 1)]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if isinstance(node, str):
            size += len(node.encode("utf-8", "surrogatepass"))
        inner: list[object] = []
        if isinstance(node, Mapping):
            inner = [*node.keys(), *node.values()]
        elif isinstance(node, list | tuple):
            inner = list(node)
        if inner and depth >= WORK_DEPTH_MAX:
            raise WorkError([Fault("", f"is nested more than {WORK_DEPTH_MAX} levels deep")])
        if nodes + len(waiting) + len(inner) > WORK_NODES_MAX:
            raise WorkError([Fault("", f"has more than {WORK_NODES_MAX} values")])
        if size > WORK_BYTES_MAX:
            raise WorkError([Fault("", f"has more than {WORK_BYTES_MAX} bytes; put what is large into the payload")])
        waiting += [(each, depth + 1) for each in inner]


def nearest(name: str, known: Sequence[str]) -> str:
    """Words for a name that is not known."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"is not a field; did you mean {found[0]}?" if found else "is not a field"


class _Check:
    """Collects faults; what is at fault has a harmless stand-in that nobody will see."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def fault(self, path: str, message: str, *, is_unknown: bool = False) -> None:
        self.faults.append(Fault(path, message, is_unknown))

    def work(self, data: Mapping[object, object]) -> Work:
        self._names(data)
        return Work(
            commands=self._forms(data),
            env=self._env(data["env"]) if "env" in data else (),
            cwd=self._cwd(data["cwd"]) if "cwd" in data else None,
            user=self._user(data["user"]) if "user" in data else None,
            stdin=self._text(data["stdin"], "stdin") if "stdin" in data else None,
            rlimits=self._rlimits(data["rlimits"]) if "rlimits" in data else (),
        )

    def _names(self, data: Mapping[object, object]) -> None:
        for name in data:
            if not isinstance(name, str):
                self.fault(_shown(name), "a field's name must be text")
            elif name in OTHER_FORMS:
                self.fault(name, "is not a native command and cannot be run by this version")
            elif name not in FIELDS:
                self.fault(_shown(name), nearest(name, (*FIELDS, *OTHER_FORMS)))

    def _forms(self, data: Mapping[object, object]) -> tuple[tuple[str, ...], ...]:
        given = [form for form in FORMS if form in data]
        if len(given) != 1:
            if given or not any(form in data for form in OTHER_FORMS):
                self.fault(
                    "", f"must have exactly one of {', '.join(FORMS)}" + (f", not {len(given)}" if given else "")
                )
            return ()
        form = given[0]
        value = data[form]
        if form == "command":
            return (self._argv(value, form),)
        if form == "shell":
            return (self._shell(value, form),)
        if not isinstance(value, list | tuple) or not value:
            self.fault(form, "must be a list of commands, at least one")
            return ()
        if len(value) > WORK_COMMANDS_MAX:
            self.fault(form, f"has {len(value)} commands; at most {WORK_COMMANDS_MAX}")
            return ()
        return tuple(self._one(each, f"{form}[{place}]") for place, each in enumerate(value))

    def _one(self, value: object, path: str) -> tuple[str, ...]:
        """In a sequence a list is a command, a text a shell's."""
        return self._shell(value, path) if isinstance(value, str) else self._argv(value, path)

    def _shell(self, value: object, path: str) -> tuple[str, ...]:
        text = self._text(value, path) if isinstance(value, str) else ""
        if not isinstance(value, str):
            self.fault(path, "must be a text for the shell")
        elif not text.strip():
            self.fault(path, "is empty")
        return (*SHELL, text)

    def _argv(self, value: object, path: str) -> tuple[str, ...]:
        if isinstance(value, str):
            self.fault(path, "must be a list of program and arguments; a text with blanks belongs under shell")
            return ()
        if not isinstance(value, list | tuple) or not value:
            self.fault(path, "must be a list of program and arguments, at least the program")
            return ()
        argv = tuple(self._text(each, f"{path}[{place}]") for place, each in enumerate(value))
        if value[0] == "":
            self.fault(f"{path}[0]", "the program's name is empty")
        return argv

    def _text(self, value: object, path: str) -> str:
        if value is None:
            self.fault(path, "is empty; write it in quotes if it is meant as text")
            return ""
        if not isinstance(value, Scalar):
            self.fault(path, "must be text")
            return ""
        text = written(value)
        if text in {"inf", "-inf", "nan"} and isinstance(value, float):
            self.fault(path, "is not a finite number")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            self.fault(path, "is not valid Unicode")
            return ""
        if "\x00" in text and path != "stdin":
            self.fault(path, "holds a zero character")
        if size > WORK_STRING_BYTES_MAX:
            self.fault(path, f"has {size} bytes; the system takes at most {WORK_STRING_BYTES_MAX}")
        return text

    def _env(self, value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, Mapping):
            self.fault("env", "must be a mapping of names to values")
            return ()
        pairs = []
        for key, each in value.items():
            name = written(key) if isinstance(key, Scalar) else ""
            path = f"env.{_shown(name)}"
            text = self._text(each, path)
            if not _ENV_NAME.fullmatch(name) or not _encodes(name):
                self.fault(path, "is not a name: 1 to 256 characters, no = and no zero character")
            elif name.startswith("QUVATLH_"):
                self.fault(path, "names beginning with QUVATLH_ are set by the worker")
            elif len(name.encode()) + len(text.encode()) + 1 > WORK_STRING_BYTES_MAX:
                self.fault(path, f"name and value have more than {WORK_STRING_BYTES_MAX} bytes")
            pairs.append((name, text))
        return tuple(pairs)

    def _cwd(self, value: object) -> str:
        text = self._text(value, "cwd")
        if (text or value == "") and not text.startswith("/"):
            kind = "absolute" if isinstance(value, str) else "text, and absolute"
            self.fault("cwd", f"must be {kind}: workers run in different places")
        return text

    def _user(self, value: object) -> str:
        text = self._text(value, "user")
        if value is not None and not _USER.fullmatch(text):
            self.fault("user", "is not the name or number of a user")
        return text

    def _rlimits(self, value: object) -> tuple[tuple[str, int], ...]:
        if not isinstance(value, Mapping):
            self.fault("rlimits", f"must be a mapping of {', '.join(RLIMITS)}")
            return ()
        pairs = []
        for name, each in value.items():
            path = f"rlimits.{_shown(name)}"
            if not isinstance(name, str) or name not in RLIMITS:
                self.fault(
                    path, f"{nearest(str(name)[:64], tuple(RLIMITS))} (it takes {', '.join(RLIMITS)})", is_unknown=True
                )
                continue
            try:
                limit = RLIMITS[name](each)
            except ValueError as error:
                self.fault(path, str(error))
                continue
            if not 0 <= limit <= INTEGER_MAX:
                self.fault(path, f"must be from 0 to {INTEGER_MAX}")
            pairs.append((name, limit))
        return tuple(pairs)


def written(value: Scalar) -> str:
    """The scalar as it stands in the text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _shown(name: object) -> str:
    """A name inside a path: short and printable, whatever it was."""
    text = name if isinstance(name, str) else type(name).__name__
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:64])


def _encodes(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
