"""`quvatlh completion`: the script that teaches a shell our commands, options and fixed values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_QUVATLH_COMPLETE"

EPILOG = """\b
To have it in every new shell:
  bash   echo 'eval "$(quvatlh completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(quvatlh completion zsh)"' >> ~/.zshrc
  fish   quvatlh completion fish > ~/.config/fish/completions/quvatlh.fish"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, "quvatlh", VARIABLE)
    script = made.source_template % made.source_vars()
    if shell == "bash":
        script = script.replace(
            "complete -o nosort", "complete -o nosort -o default"
        )  # names of files where we know none
    click.echo(script)
