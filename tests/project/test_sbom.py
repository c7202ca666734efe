"""The software bill of materials holds what the lock files hold."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("lock", ["core.lock", "flower.lock"])
def test_the_bill_of_materials_names_every_locked_package_and_hash(lock):
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    script = [sys.executable, ROOT / "deploy" / "sbom.py", ROOT / "requirements" / lock]
    bill = json.loads(subprocess.run(script, capture_output=True, check=True, text=True).stdout)
    named = {f"{one['name']}=={one['version']}" for one in bill["components"]}
    assert named == set(re.findall(r"^[A-Za-z0-9._-]+==[^ ;\\\n]+", text, re.MULTILINE))
    digests = [one["content"] for each in bill["components"] for one in each["hashes"]]
    assert sorted(digests) == sorted(re.findall(r"sha256:([0-9a-f]{64})", text))
