"""Leaves the examples of modules out whose extra is not installed."""

from importlib.util import find_spec

_NEED = {"torch": "src/multicentre/multiview/vae/*", "flwr": "src/multicentre/engines/flower/*"}
collect_ignore_glob = [files for library, files in _NEED.items() if not find_spec(library)]
