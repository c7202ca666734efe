"""The folder of a site, and the folder of what its steward approves."""

import pytest

from multicentre_sites.deployment.new_site_folder import make_site


@pytest.fixture
def lyon(tmp_path):
    return make_site("lyon", tmp_path / "lyon")


@pytest.fixture
def folder(lyon):
    return lyon.folder / "approved"
