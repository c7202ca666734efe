"""State of a service on the terminal: text, JSON or Prometheus's format."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

import typer

from multicentre.cli.console import align, show, show_json


class StatusFormat(str, Enum):  # noqa: UP042  # typer reads it from Python 3.11 on
    """Format of a service's state."""

    text = "text"
    prometheus = "prometheus"


Format = Annotated[
    StatusFormat, typer.Option("--format", help="prometheus: exit status 0 also if the service does not work.")
]


def show_status(
    service: Literal["site", "coordinator"], state: Mapping[str, Any], chosen: StatusFormat, as_json: bool
) -> None:
    """Print the state of a site or a coordinator, and exit with the status of a fault unless it works."""
    from multicentre.errors import ConfigurationError
    from multicentre_sites.deployment.status import metrics_of

    if chosen is StatusFormat.prometheus:
        return show(metrics_of(service, state))
    if as_json:
        show_json(state)
    else:
        show(align([["what", "state"], *([name, str(value)] for name, value in state.items())]))
    if not state["ok"]:
        raise typer.Exit(ConfigurationError.exit_code)
    return None
