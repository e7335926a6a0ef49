"""The task table as a person would write it down: dictionaries, whole scans, no indexes, no counters, no batches.

It knows jobs and services, limits by name and queue, unique keys, expiry, retries, loss, kill, delete, moves. What it
says of every task is compared with the tables after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

REST_MS = [1000, 2000, 4000, 8000, 16000, 32000, 60000]


@dataclass
class Action:
    token: int
    worker: str
    begun: bool = False
    stop: str = ""
    began_ms: int = 0
    queue: str = ""


@dataclass
class Task:
    id: str
    state: str
    service: bool = False
    once: bool = False
    name: str = ""
    limit: int | None = None
    queue: str = "default"
    due_ms: int | None = None
    expires_ms: int | None = None
    retries: int = 25
    key: str | None = None
    attempts: int = 0
    failures: int = 0
    deaths: int = 0
    resting: int = 0
    streak: int = 0
    error: str | None = None
    actions: list[Action] = field(default_factory=list)
    seen: str = ""
    """The state when keys were given out last."""

    @property
    def over(self) -> bool:
        return self.state in {"succeeded", "failed", "deleted"}

    @property
    def waiting(self) -> bool:
        return self.state in {"scheduled", "pending", "retrying"}


class Plain:
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.queue_limits: dict[str, int] = {}
        self.keys: dict[str, str] = {}
        self.tokens = 0
        self.now = 0

    def add(self, task: Task) -> str:
        """The id of what stands for it."""
        if task.id in self.tasks:
            return task.id
        if task.key is not None:
            holder = self.keys.get(task.key)
            if holder is not None:
                return holder
            self.keys[task.key] = task.id
        if task.due_ms is not None:
            task.state = "scheduled"
        self.tasks[task.id] = task
        return task.id

    def award(self, id_: str, worker: str) -> int:  # noqa: PLR0911 - one line a rule
        task = self.tasks[id_]
        live = [(other, action) for other in self.tasks.values() for action in other.actions]
        if task.service:
            if task.over or task.state == "scheduled":
                return 0
            if len(task.actions) + task.resting >= (task.limit or 1):
                return 0
        elif task.state != "pending" or task.actions:
            return 0
        if task.expires_ms is not None and task.expires_ms <= self.now and self._may_expire(task):
            return 0
        queued = sum(1 for _, action in live if action.queue == task.queue)
        if queued >= self.queue_limits.get(task.queue, 10**9):
            return 0
        namesakes = [other for other, _ in live if (other.name or other.id) == (task.name or task.id)]
        smallest = min([other.limit for other in [*namesakes, task] if other.limit is not None], default=10**9)
        if len(namesakes) + 1 > smallest:
            return 0
        self.tokens += 1
        task.actions.append(Action(self.tokens, worker, queue=task.queue))
        task.attempts += 1
        if not task.service:
            task.state = "claimed"
        return self.tokens

    def _may_expire(self, task: Task) -> bool:
        return task.waiting and not (task.service and (task.actions or task.attempts))

    def start(self, token: int) -> None:
        task, action = self._of(token)
        if not action.begun:
            action.begun, action.began_ms = True, self.now
        if not task.over:
            task.state = "running"

    def finish(self, token: int, how: str, *, permanent: bool = False, wait_ms: int = 0, begun: bool = True) -> None:
        task, action = self._of(token)
        if begun and not action.begun:
            action.begun, action.began_ms = True, self.now
        task.actions.remove(action)
        if task.over:
            return
        if task.service:
            moved = action.stop in {"relocate", "surplus"} or (how == "stopped" and not action.stop)
            if not moved:
                steady = action.begun and self.now - action.began_ms >= 60_000
                task.streak = 1 if steady else task.streak + 1
                task.resting += 1
                rest = REST_MS[min(task.streak, len(REST_MS)) - 1]
                task.due_ms = max(task.due_ms or 0, self.now + rest)
            self._service_state(task)
        elif how == "succeeded":
            self._over(task, "succeeded")
        elif how == "stopped":
            if task.once and action.begun:
                self._over(task, "failed", "stopped")
            else:
                task.state = "pending"
        else:
            task.failures += 1
            if permanent or task.once or task.failures >= task.retries:
                self._over(task, "failed", "exit")
            else:
                task.state, task.due_ms, task.error = "retrying", self.now + wait_ms, "exit"

    def give_back(self, token: int) -> bool:
        task, action = self._of(token)
        if action.begun:
            return False
        task.actions.remove(action)
        task.attempts -= 1
        if not task.over and not task.service:
            task.state = "pending"
        return True

    def lose(self, token: int, *, died: bool) -> None:
        task, action = self._of(token)
        task.actions.remove(action)
        if task.over:
            return
        if task.service:
            self._service_state(task)
        elif task.once:
            self._over(task, "failed", "lost")
        else:
            task.deaths += died
            if task.deaths >= 3:
                self._over(task, "failed", "poison")
            else:
                task.state = "pending"

    def kill(self, id_: str) -> bool:
        task = self.tasks[id_]
        if task.over:
            return True
        if task.service:
            fresh = [action for action in task.actions if not action.stop]
            for action in task.actions:
                action.stop = "kill"
            return bool(fresh)
        if task.state not in {"claimed", "running"}:
            return False
        for action in task.actions:
            action.stop = "kill"
        self._over(task, "failed", "killed")
        return True

    def delete(self, id_: str, *, failed: bool) -> bool:
        task = self.tasks[id_]
        if not task.over or (failed and task.state == "failed"):
            for action in task.actions:
                action.stop = "delete"
            self._over(task, "deleted", task.error if task.over else None)
        return True

    def move(self, id_: str, queue: str, *, failed: bool) -> bool:
        """Into another queue; what is live counts where it was awarded."""
        task = self.tasks[id_]
        if task.over and not (failed and task.state == "failed"):
            return False
        task.queue = queue
        return True

    def retry(self, id_: str) -> bool:
        task = self.tasks[id_]
        if task.state not in {"failed", "retrying"} or task.actions:
            return False
        if task.state == "failed":
            task.failures, task.deaths, task.error = 0, 0, None
        task.state, task.due_ms = "pending", None
        if task.expires_ms is not None and task.expires_ms <= self.now:
            task.expires_ms = None
        return True

    def relocate(self, id_: str) -> bool:
        task = self.tasks[id_]
        if task.over or (task.once and any(action.begun for action in task.actions)):
            return False
        for action in task.actions:
            action.stop = action.stop or "relocate"
        return True

    def promote(self) -> None:
        due = [task for task in self.tasks.values() if not task.over and task.due_ms is not None]
        for task in sorted(due, key=lambda task: task.due_ms or 0):
            if task.due_ms is not None and task.due_ms <= self.now:
                task.due_ms, task.resting = None, 0
                if task.state in {"scheduled", "retrying"}:
                    task.state = "pending"
                    self.give_keys()

    def expire(self) -> None:
        for task in self.tasks.values():
            if task.expires_ms is not None and task.expires_ms <= self.now and self._may_expire(task):
                self._over(task, "failed", "expired")

    def give_keys(self) -> None:
        """Whose state has changed takes its key if nobody has it."""
        for task in self.tasks.values():
            if task.state != task.seen and task.key is not None and not task.over:
                self.keys.setdefault(task.key, task.id)
            task.seen = task.state

    def live(self) -> dict[int, tuple[str, str, bool, str]]:
        """Token -> task, worker, begun, why it stops."""
        return {
            action.token: (task.id, action.worker, action.begun, action.stop)
            for task in self.tasks.values()
            for action in task.actions
        }

    def _of(self, token: int) -> tuple[Task, Action]:
        found = [(task, a) for task in self.tasks.values() for a in task.actions if a.token == token]
        assert len(found) == 1
        return found[0]

    def _over(self, task: Task, state: str, error: str | None = None) -> None:
        task.state, task.error = state, error
        task.due_ms, task.resting = None, 0
        if task.key is not None and self.keys.get(task.key) == task.id:
            del self.keys[task.key]

    def _service_state(self, task: Task) -> None:
        if task.state != "scheduled":
            task.state = "running" if any(action.begun for action in task.actions) else "pending"
