import ssl

import pytest
from cryptography import x509

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.certificates import (
    certify_host,
    check_certificate,
    days_left,
    new_authority,
    read_certified,
    write_certified,
)

HOSTS = ["fl.example.org", "localhost", "127.0.0.1", "10.1.2.3"]


def written(folder, host, authority=None):
    authority = authority or new_authority(host)
    files = folder / "ca.crt", folder / "host.crt", folder / "host.key"
    write_certified(authority, files[0], folder / "ca.key")
    write_certified(certify_host(authority, host), files[1], files[2])
    return files


@pytest.mark.parametrize("host", HOSTS)
def test_who_trusts_the_authority_takes_the_certificate_for_host_and_loopback(tmp_path, host):
    files = written(tmp_path, host)
    for name in (host, "localhost", "127.0.0.1"):
        check_certificate(*files, name)
    assert 700 < days_left(files[1]) <= 730
    assert all((tmp_path / key).stat().st_mode & 0o777 == 0o600 for key in ("ca.key", "host.key"))


def test_authority_vouches_for_no_other_host(tmp_path):
    files = written(tmp_path, "evil.example.com", new_authority("fl.example.org"))
    with pytest.raises(ConfigurationError, match="permitted subtree"):
        check_certificate(*files, "evil.example.com")


def test_authority_can_certify_and_its_certificates_cannot():
    authority = new_authority("fl.example.org")
    host = certify_host(authority, "fl.example.org")
    basic = [one.certificate.extensions.get_extension_for_class(x509.BasicConstraints) for one in (authority, host)]
    assert [(one.value.ca, one.value.path_length, one.critical) for one in basic] == [
        (True, 0, True),
        (False, None, True),
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [("name", "Hostname mismatch"), ("ca", "self-signed certificate|unable to get"), ("key", "must belong together")],
)
def test_certificate_that_sites_would_refuse_is_refused(tmp_path, changed, said):
    (tmp_path / "other").mkdir()
    files, other = written(tmp_path, "fl.example.org"), written(tmp_path / "other", "fl.example.org")
    given = {"ca": files[0], "certificate": files[1], "key": files[2]}
    given |= {changed: other[["ca", "certificate", "key"].index(changed)]} if changed != "name" else {}
    with pytest.raises(ConfigurationError, match=said):
        check_certificate(*given.values(), "other.example.org" if changed == "name" else "fl.example.org")


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_files_that_are_none_are_refused(tmp_path, content):
    files = written(tmp_path, "localhost")
    files[1].unlink() if content is None else files[1].write_bytes(content)
    with pytest.raises(ConfigurationError):
        check_certificate(*files, "localhost")


def test_certified_is_read_as_written(tmp_path):
    authority = new_authority("localhost")
    write_certified(authority, tmp_path / "ca.crt", tmp_path / "ca.key")
    assert read_certified(tmp_path / "ca.crt", tmp_path / "ca.key").certificate == authority.certificate
    write_certified(new_authority("localhost"), tmp_path / "ca.crt", tmp_path / "other.key")
    with pytest.raises(ConfigurationError, match="must be readable and belong together"):
        read_certified(tmp_path / "ca.crt", tmp_path / "ca.key")


def test_openssl_takes_the_chain_by_its_strictest_rules(tmp_path):
    ca, certificate, _ = written(tmp_path, "fl.example.org")
    context = ssl.create_default_context(cafile=ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(certificate, tmp_path / "host.key")
    from multicentre_sites.deployment.certificates import _shake_hands

    _shake_hands(inside, context, "fl.example.org")
