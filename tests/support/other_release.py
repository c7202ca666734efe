"""The command line of another release: ``other_release.py VERSION METHOD ...``; of METHOD, the steps differ."""

import importlib.metadata
import sys

_installed = importlib.metadata.version


def _begin(version: str, method: str) -> None:
    importlib.metadata.version = lambda name: version if name == "multicentre" else _installed(name)
    import multicentre
    from multicentre.cli import main
    from multicentre.estimator.base import find_estimator

    multicentre.__version__ = version
    if method:
        find_estimator(method).site_part.revision += 1
    main()


if __name__ == "__main__":
    _, version, method, *arguments = sys.argv
    sys.argv = [sys.argv[0], *arguments]
    _begin(version, method)
