"""Print the software bill of materials of a lock file, in the format CycloneDX 1.6.

    python deploy/sbom.py requirements/flower.lock > multicentre.cdx.json

The list holds every package of the lock with its version and the SHA-256 of each of its files, and the package itself.
Needs the standard library only.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\\n]+)(?P<rest>(?:.*\\\n)*.*$)", re.MULTILINE)


def component(name, version, digests=()):
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        # One digest per file of the release: a wheel per platform, and the sdist.
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
    }


def bill_of_materials(lock):
    """Return the bill of a lock file's text as plain values."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    pins = [
        component(match["name"], match["version"], re.findall(r"--hash=sha256:([0-9a-f]{64})", match["rest"]))
        for match in PIN.finditer(lock)
    ]
    package = component(project["name"], project["version"]) | {"licenses": [{"license": {"id": project["license"]}}]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": package},
        "components": pins,
    }


if __name__ == "__main__":
    print(json.dumps(bill_of_materials(Path(sys.argv[1]).read_text(encoding="utf-8")), indent=2))
