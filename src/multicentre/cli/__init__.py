"""Command line interface: one module per subject; heavy imports are deferred until a command runs."""

from __future__ import annotations

from multicentre.lazy import lazy_names

# On first use: other distributions import modules of this package before their commands join the application.
__getattr__, __dir__ = lazy_names(__name__, {"app": "commands"}, ["app", "main"])


def main() -> None:
    """Run the command line."""
    from multicentre.cli.commands import app

    app()
