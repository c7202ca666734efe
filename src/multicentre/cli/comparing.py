"""What the coordinator's commands print for people to compare by telephone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.cli.console import show, tell

if TYPE_CHECKING:
    from multicentre.deployment.consortium import Consortium
    from multicentre.deployment.fingerprints import Fingerprints

COMPARE = "Compare these by telephone with what the sites' commands print (site approve; authority: site check):"


def read_fingerprints(consortium: Consortium) -> Fingerprints:
    """Return the fingerprints of what a coordinator's sites are given."""
    from multicentre.deployment.fingerprints import Fingerprints

    return Fingerprints.of(consortium.public)


def show_fingerprints(fingerprints: Fingerprints) -> None:
    """Print fingerprints as a result, and what to do with them."""
    tell(COMPARE)
    show(str(fingerprints))
