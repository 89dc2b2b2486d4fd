"""`barnabas completion`: scripts that teach a shell to complete this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(barnabas completion bash)"      in ~/.bashrc
    zsh:   eval "$(barnabas completion zsh)"       in ~/.zshrc
    fish:  barnabas completion fish | source       in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click has these three"
    click.echo(kind(ctx.find_root().command, {}, "barnabas", "_BARNABAS_COMPLETE").source())
