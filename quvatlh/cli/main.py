"""The command line. Each command says what it does and ends with a status of status.py; what it prints goes to standard
output, everything else to standard error. But for `run`, `config` and `cluster restore`, all speak HTTP only.
"""

from __future__ import annotations

import click

from quvatlh.cli.lazy import LazyGroup

COMMANDS = {
    "run": ("quvatlh.cli.run:run", "Run a node until SIGTERM or SIGINT."),
    "add": ("quvatlh.cli.add:add", "Add tasks: a command, or files of tasks."),
    "ls": ("quvatlh.cli.ls:ls", "List tasks."),
    "show": ("quvatlh.cli.show:show", "Show one task, with its runs."),
    "explain": ("quvatlh.cli.explain:explain", "Say why a task is not running yet."),
    "logs": ("quvatlh.cli.logs:logs", "Print what a task wrote."),
    "wait": ("quvatlh.cli.wait:wait", "Wait until tasks have finished."),
    "retry": ("quvatlh.cli.verbs:retry", "Run failed tasks again."),
    "kill": ("quvatlh.cli.verbs:kill", "Stop tasks as failed."),
    "delete": ("quvatlh.cli.verbs:delete", "Stop and delete tasks."),
    "move": ("quvatlh.cli.verbs:move", "Move tasks to another worker, queue or place in the order."),
    "queues": ("quvatlh.cli.queues:queues", "List queues."),
    "queue": ("quvatlh.cli.queues:queue", "One queue: look at it, set it, pause it, purge it, delete it."),
    "class": ("quvatlh.cli.classes:classes", "Classes that share slots or starts out among queues."),
    "workers": ("quvatlh.cli.workers:workers", "List workers."),
    "worker": ("quvatlh.cli.workers:worker", "One worker: look at it, change it, drain it."),
    "drain": ("quvatlh.cli.workers:drain", "Let a worker finish, and give it nothing new."),
    "balance": ("quvatlh.cli.balance:balance", "Even out a group over its workers."),
    "cron": ("quvatlh.cli.cron:cron", "Schedules: list, add, show, pause, run, what became of them."),
    "policy": ("quvatlh.cli.policy:policy", "Stored policies: list, show, store, delete, test."),
    "cluster": ("quvatlh.cli.cluster:cluster", "Nodes, backup and restore."),
    "top": ("quvatlh.cli.top:top", "Watch it all in the terminal."),
    "bench": ("quvatlh.cli.bench:bench", "Measure this cluster with tasks that do nothing."),
    "open": ("quvatlh.cli.open:open_", "Open the dashboard in a browser."),
    "token": ("quvatlh.cli.token:token", "Tokens: the one that commands use; others made, listed, revoked."),
    "config": ("quvatlh.cli.configs:config", "Look at configurations."),
    "completion": ("quvatlh.cli.completion:completion", "Print the completion script of a shell."),
}

EPILOG = """\b
First steps:
  quvatlh run                      in one terminal: a node of its own
  quvatlh add -- echo hello        in another: prints the id of the task
  quvatlh logs ID                  what it wrote
  quvatlh open                     all of it, in a browser

\b
Exit status: 0 done, 1 rejected, 2 usage, 3 unavailable (ask again later),
4 unknown outcome, 5 the awaited task failed."""


@click.group(
    cls=LazyGroup,
    lazily=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="quvatlh", message="quvatlh %(version)s")
def main() -> None:
    """A scheduler, worker and replica in one daemon."""
