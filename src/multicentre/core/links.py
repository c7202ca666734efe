"""Faults on the way between a site and its coordinator: their limits, and errors with the remedy."""

from __future__ import annotations

from multicentre.errors import ConfigurationError, MessageError

# Limit of a SuperLink for signatures of sites whose clocks are ahead. The one figure for clocks, in both directions.
MAX_CLOCK_DIFFERENCE_S = 5.0
# A SuperLink rejects a request whose signature is older than 305 s when it has arrived.
PART_WITHIN_S = 300.0
REQUEST_LESS = "Request less at once: fewer columns, landmarks or trees."
SET_CLOCK = "Set the clock of the machine that is wrong, and keep it right by NTP."
PROXY_REFUSAL = "407 Proxy Authentication Required"


def clock_differs(off_s: float, address: str) -> ConfigurationError:
    """Return the error for a site whose clock is `off_s` seconds ahead of that of the coordinator at `address`."""
    return ConfigurationError(
        f"the clock of the site must be within {MAX_CLOCK_DIFFERENCE_S:g} s of the coordinator's; "
        f"it is {abs(off_s):.0f} s {'ahead' if off_s > 0 else 'behind'}",
        where=address,
        hint=SET_CLOCK,
    )


def proxy_refuses(address: str, proxy: str = "") -> ConfigurationError:
    """Return the error for a proxy on the way to `address` that requires credentials."""
    return ConfigurationError(
        f"the proxy{f' {proxy}' if proxy else ''} must accept the credentials of this site; it answers {PROXY_REFUSAL}",
        where=f"HTTPS_PROXY, on the way to {address}",
        hint="Set HTTPS_PROXY=http://user:password@host:port for the account of the service, with special characters "
        "as %XX; or have the proxy let this address pass.",
    )


def too_large_for_proxy(size: int, address: str) -> MessageError:
    """Return the error for a part of a message that a proxy on the way to `address` rejects by its size."""
    return MessageError(
        f"every proxy must let parts of messages pass; one rejects a part of {size / 2**20:.1f} MiB (413 Content Too "
        "Large)",
        where=address,
        hint=f"Have its administrator permit bodies of 8 MiB (nginx: client_max_body_size 8m). {REQUEST_LESS}",
    )


def too_slow(size: int, address: str) -> MessageError:
    """Return the error for a part of a message that the link to `address` repeatedly does not carry in its time."""
    return MessageError(
        f"the link must carry a part of {size / 2**20:.1f} MiB within {PART_WITHIN_S:g} s; it repeatedly did not",
        where=address,
        hint=f"The site needs an upload of at least {size / PART_WITHIN_S / 1000:.0f} kB/s. {REQUEST_LESS}",
    )
