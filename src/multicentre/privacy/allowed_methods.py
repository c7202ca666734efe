"""Methods that a policy permits, and the distributions that provide them.

A policy names a method, or a method of one distribution with its accepted versions: ``own-method @ own-distribution
>= 1.2``. The site compares the entry with the installed distribution. This protects against a method of the same name
from a different distribution, and against a version that the steward did not accept. It does not protect against the
code of an installed distribution, which runs with the rights of the site's process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError

METHOD_GROUP = "multicentre.methods"
PART_GROUP = "multicentre.site_parts"
_ENTRY = re.compile(r"\s*(?P<method>[^\s@]+)\s*@\s*(?P<requirement>.*)", re.DOTALL)


@dataclass(frozen=True)
class Provider:
    """Distribution that provides a site part."""

    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class AllowedMethod:
    """Method that a policy permits.

    Parameters
    ----------
    method : str
    requirement : Requirement, optional
        Distribution that must provide the method, with its accepted versions; None accepts every distribution.
    """

    method: str
    requirement: Requirement | None = None

    def accepts(self, provider: Provider | None) -> bool:
        """Return whether the distribution and its version meet the requirement."""
        if self.requirement is None:
            return True
        if provider is None or canonicalize_name(provider.distribution) != canonicalize_name(self.requirement.name):
            return False
        # The steward decides which versions are installed, so an installed pre-release is compared like any version.
        return self.requirement.specifier.contains(provider.version, prereleases=True)


def parse_allowed(entry: str) -> AllowedMethod:
    """Return the method that an entry of a policy's list permits.

    Raises
    ------
    ConfigurationError
        The part after ``@`` is not the name of a distribution with an optional range of versions.

    Examples
    --------
    >>> parse_allowed("fed-cox")
    AllowedMethod(method='fed-cox', requirement=None)
    >>> allowed = parse_allowed("own-method @ own-distribution >= 1.2")
    >>> allowed.accepts(Provider("own-distribution", "1.3")), allowed.accepts(Provider("own-distribution", "1.1"))
    (True, False)
    """
    if "@" not in entry:
        return AllowedMethod(entry)
    match = _ENTRY.fullmatch(entry)
    requirement = None if match is None else _requirement(match["requirement"])
    if match is None or requirement is None:
        raise ConfigurationError(
            f"an entry of methods must be a method, or a method @ a distribution and its versions; got {entry!r}",
            where="policy, methods",
            hint='Example: "own-method @ own-distribution >= 1.2".',
        )
    return AllowedMethod(match["method"], requirement)


def check_allowed(entries: Iterable[str] | None) -> None:
    """Raise the error of :func:`parse_allowed` if an entry of a policy's list of methods is invalid."""
    for entry in entries or ():
        parse_allowed(entry)


def provider_of(part: type[SitePart]) -> Provider | None:
    """Return the installed distribution that provides a site part.

    This is the distribution with an entry point in the part's top-level package. The result is None if no distribution
    or several distributions have such an entry point.

    Examples
    --------
    >>> from multicentre.multiview.ppca.site import MvPPCASite
    >>> provider_of(MvPPCASite).distribution
    'multicentre'
    """
    package = _top_level(part.__module__)
    providers = {
        Provider(entry.dist.name, entry.dist.version)
        for group in (METHOD_GROUP, PART_GROUP)
        for entry in entry_points(group=group)
        if entry.dist is not None and _top_level(entry.module) == package
    }
    return providers.pop() if len(providers) == 1 else None


def find_objection(allowed: tuple[str, ...] | None, method: str, part: type[SitePart] | None = None) -> str | None:
    """Return the end of the sentence "the policy does not permit the method ..."; None if it permits the method.

    Parameters
    ----------
    allowed : tuple of str or None
        Entries of the policy; None permits every method.
    method : str
    part : type, optional
        Site part that runs the method. Without it, only the name is compared.

    Returns
    -------
    str or None
        Empty if the policy does not list the name; otherwise the installed and the accepted distribution.

    Examples
    --------
    >>> find_objection(("fed-cox",), "fed-cox"), find_objection(("fed-cox",), "fed-rsf")
    (None, '')
    """
    if allowed is None:
        return None
    entries = [one for one in map(parse_allowed, allowed) if one.method == method]
    if not entries:
        return ""
    if part is None or any(one.requirement is None for one in entries):
        return None
    provider = provider_of(part)
    if any(one.accepts(provider) for one in entries):
        return None
    accepted = " or ".join(str(one.requirement) for one in entries)
    return f" of {provider or 'an unknown distribution'}; it must be provided by {accepted}"


def _requirement(text: str) -> Requirement | None:
    """Return a distribution with its versions; None if the text has a different form (address, extra, marker)."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return None if requirement.url or requirement.extras or requirement.marker else requirement


def _top_level(module: str) -> str:
    return module.partition(".")[0]
