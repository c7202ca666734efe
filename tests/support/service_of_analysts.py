"""A coordinator's service for analysts whose sites answer in the process of the run, without Flower.

``serve FOLDER SOCKET`` listens until standard input closes; ``FOLDER FD`` is the process of one run, which the service
starts.
"""

import sys
from functools import partial
from pathlib import Path

from multicentre.estimator.registry import METHODS
from multicentre_sites.deployment import analyst_run
from multicentre_sites.deployment.analyst_service import AnalystService
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.private_files import check_secrets, nothing_for_others
from support.real_sites import Hospitals
from support.remote_sites import ByHand
from support.studies_toy import TOY

SITES = "hospitals"


class Again(Hospitals):
    """Hospitals whose folders were made before."""

    def __init__(self, root, names):
        self.root, self.names, self.handlers = root, names, {}


def connect(folder, study):
    """Return what calls the request handlers of the sites beside the coordinator's folder."""
    sites = Again(folder.parent / SITES, tuple(study.sites))
    return ByHand({name: partial(sites.answer, name) for name in study.sites})


def main():
    METHODS["toy"] = TOY
    if sys.argv[1] != "serve":
        analyst_run.main(connect)
        return
    consortium = Consortium.read(sys.argv[2])
    with nothing_for_others():
        check_secrets(consortium)
        service = AnalystService(consortium, Path(sys.argv[3]), print, programme=(__file__,))
        print("Ready", flush=True)
        sys.stdin.read()
        service.close(8.0)


if __name__ == "__main__":
    main()
