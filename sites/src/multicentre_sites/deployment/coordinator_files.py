"""Files of a coordinator's folder that are read before its processes start, so that each fault is named."""

from __future__ import annotations

from multicentre.core.disk import check_space
from multicentre_sites.deployment.analysts import AdmittedAnalysts
from multicentre_sites.deployment.certificates import days_left, read_certified
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.private_files import check_secrets
from multicentre_sites.deployment.release_key import ReleaseKey
from multicentre_sites.deployment.site_register import SiteRegister


def check_files(consortium: Consortium) -> None:
    """Read every file that the coordinator needs.

    Raises
    ------
    ConfigurationError
        A key or a certificate is missing or damaged, others have rights to one, or the disk is full.
    IntegrityError
        The register or the list of analysts is damaged.
    """
    check_space((consortium.folder, consortium.state, consortium.public))
    check_secrets(consortium)
    SiteRegister.read(consortium.register)
    _ = AdmittedAnalysts(consortium.analysts).cards
    ReleaseKey.read(consortium.release_key)
    days_left(consortium.settings.tls.certificate)
    days_left(consortium.settings.tls.ca)
    read_certified(consortium.superlink_ca, consortium.superlink_ca_key)
    read_certified(consortium.superlink_certificate, consortium.superlink_key)
