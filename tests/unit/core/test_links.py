"""Errors about the way between a site and its coordinator name the limit, what was measured, and the remedy."""

import pytest

from multicentre.core.links import clock_differs, proxy_refuses, too_large_for_proxy, too_slow
from multicentre.errors import ConfigurationError, MessageError

ADDRESS = "fl.example.org:443"


@pytest.mark.parametrize(("off_s", "stated"), [(61.4, "61 s ahead"), (-600.0, "600 s behind"), (5.6, "6 s ahead")])
def test_a_wrong_clock_is_named_with_its_direction(off_s, stated):
    error = clock_differs(off_s, ADDRESS)
    assert type(error) is ConfigurationError
    assert error.where == ADDRESS
    assert error.what == f"the clock of the site must be within 5 s of the coordinator's; it is {stated}"
    assert error.hint == "Set the clock of the machine that is wrong, and keep it right by NTP."


@pytest.mark.parametrize(
    ("proxy", "named"),
    [("", "the proxy must accept"), ("http://proxy:3128", "the proxy http://proxy:3128 must accept")],
)
def test_a_proxy_that_requires_credentials_is_named(proxy, named):
    error = proxy_refuses(ADDRESS, proxy)
    assert type(error) is ConfigurationError
    assert error.what == (f"{named} the credentials of this site; it answers 407 Proxy Authentication Required")
    assert error.where == f"HTTPS_PROXY, on the way to {ADDRESS}"
    assert error.hint == (
        "Set HTTPS_PROXY=http://user:password@host:port for the account of the service, with special characters as "
        "%XX; or have the proxy let this address pass."
    )


def test_a_proxy_need_not_be_named():
    assert proxy_refuses(ADDRESS).what == proxy_refuses(ADDRESS, "").what


def test_a_part_that_is_too_large_for_a_proxy_is_named_with_its_size():
    error = too_large_for_proxy(3 * 2**19, ADDRESS)
    assert type(error) is MessageError
    assert error.where == ADDRESS
    assert error.what.endswith("one rejects a part of 1.5 MiB (413 Content Too Large)")
    assert error.hint == (
        "Have its administrator permit bodies of 8 MiB (nginx: client_max_body_size 8m). "
        "Request less at once: fewer columns, landmarks or trees."
    )


def test_a_slow_link_is_named_with_the_upload_that_it_needs():
    """6,000,000 bytes within 300 s are 20,000 bytes per second, and 5.7 MiB."""
    error = too_slow(6_000_000, ADDRESS)
    assert type(error) is MessageError
    assert error.where == ADDRESS
    assert error.what == "the link must carry a part of 5.7 MiB within 300 s; it repeatedly did not"
    assert error.hint == (
        "The site needs an upload of at least 20 kB/s. Request less at once: fewer columns, landmarks or trees."
    )
