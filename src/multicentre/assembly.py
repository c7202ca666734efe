"""Where core, privacy and engines are put together: the federation that users make."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from multicentre.engines.faults import Faults, Faulty
from multicentre.engines.in_process import InProcess
from multicentre.federation import coordinator
from multicentre.federation.coordinator import PlainSummation, Summation
from multicentre.federation.engine import Engine
from multicentre.federation.errors import ConfigurationError, DisclosureWarning
from multicentre.federation.noise import Plan
from multicentre.federation.progress import Listener
from multicentre.federation.runtime import SiteRuntime
from multicentre.federation.steps import SitePart
from multicentre.federation.storage import Store, check_site_name
from multicentre.federation.terms import Quorum, Terms
from multicentre.privacy.card import DisclosureCard, disclosure_card
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.policy import Policy
from multicentre.privacy.pseudonyms import PseudonymKey
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.seal import MaskingSeal
from multicentre.privacy.secure_sum.summation import MaskedSummation


class Federation(coordinator.Federation):
    """The sites of a study; see :meth:`in_process`."""

    _guards: Mapping[str, Guard]

    @classmethod
    def in_process(
        cls,
        sites: Mapping[str, Any],
        *,
        policy: Policy | str | Path | Mapping[str, Policy] | None = None,
        secure_sum: bool = False,
        strict: bool = False,
        study: str = "study",
        quorum: Quorum = "all",
        time_limit_s: float | None = None,
        sites_per_patient: int = 1,
        pseudonym_key: PseudonymKey | Mapping[str, PseudonymKey] | None = None,
        folder: str | Path | None = None,
        listener: Listener | None = None,
        faults: Faults | None = None,
    ) -> Self:
        """Make a federation whose sites live in this process.

        Parameters
        ----------
        sites : mapping of str to data
            Each site's name and data (``multicentre.data.MultiViewData``, say).
        policy : Policy, path or mapping, optional
            One policy for all sites (an object or a ``policy.toml``), or one by site's name.
        secure_sum : bool, default False
            Sums are masked: the coordinator learns the sum and no summand.
        strict : bool, default False
            Every message goes through the wire format.
        study : str
            Name written to every ledger.
        quorum : "all" or int, default "all"
            How many sites must answer.
        time_limit_s : float, optional
            Seconds that a site may take for one step.
        sites_per_patient : int, default 1
            At how many sites one patient may have records; differential privacy adds up over them.
        pseudonym_key : PseudonymKey or mapping of str to PseudonymKey, optional
            The key under which sites make pseudonyms of identifiers, one for all or one by site's name. By default it
            follows from the study's name, so that folds repeat: that is no secret, and none is needed where all records
            are in this process anyway. Sites on machines of their own need one that was drawn.
        folder : path, optional
            Where checkpoints, the sites' states and ledgers are kept, so that a run can be resumed.
        listener : Listener, optional
            Who is told of rounds and losses.
        faults : Faults, optional
            Delays and losses, for tests.

        Raises
        ------
        ConfigurationError
            No site, a name that cannot be a folder's, or a quorum that cannot be met.

        Examples
        --------
        >>> import multicentre as mc
        >>> labelled = mc.datasets.simulate_sd(seed=1)
        >>> sites = mc.datasets.split_scenario(labelled, "IID", n_sites=3, seed=0)
        >>> data = {name: site.data for name, site in sites.items()}
        >>> mc.Federation.in_process(data, policy=mc.Policy(min_patients=20), secure_sum=True)
        Federation(centre-1, centre-2, centre-3; sums masked, quorum all)
        """
        root = None if folder is None else Path(folder)
        guards = {
            name: Guard(policy_here, Ledger(_inside(root, name, "ledger.jsonl")), _ids(data), site=name)
            for name, data, policy_here in _with_policies(sites, policy)
        }
        _warn_of_short_memory(guards)
        seals = _seals(guards) if secure_sum else {}
        runtimes = {
            name: SiteRuntime(
                name,
                _allowed(data, guards[name].policy, name),
                guards[name],
                seal=seals.get(name),
                store=None if root is None else Store(root / "sites" / name / "state"),
                key=_key_of(name, study, pseudonym_key),
            )
            for name, data in sites.items()
        }
        engine: Engine = InProcess(runtimes, strict=strict)
        colluding = max((guard.policy.colluding_sites for guard in guards.values()), default=0)
        summation: Summation = MaskedSummation(n_colluding=colluding) if secure_sum else PlainSummation()
        federation = cls(
            Faulty(engine, faults) if faults else engine,
            terms=Terms(study, quorum, time_limit_s, sites_per_patient),
            summation=summation,
            store=None if root is None else Store(root / "checkpoints"),
            listener=listener,
        )
        federation._guards = guards
        return federation

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """The ledger of each site, which only an in-process federation can show."""
        return {name: guard.ledger for name, guard in self._guards.items()}

    def card(
        self, part: type[SitePart], plan: Plan | None = None, asked: Collection[str] | None = None
    ) -> DisclosureCard:
        """Return what a method would let out of these sites.

        Parameters
        ----------
        part : type
            The method's site part.
        plan : Plan, optional
            The noise of its releases.
        asked : collection of str, optional
            Names of the steps that will be asked; all that the part offers otherwise.
        """
        loosest = min((guard.policy for guard in self._guards.values()), key=lambda policy: policy.min_patients)
        return disclosure_card(
            part,
            protection=self.protection,
            n_sites=len(self.sites),
            policy=loosest,
            plan=plan,
            sites_per_patient=self.terms.sites_per_patient,
            asked=asked,
        )


def _warn_of_short_memory(guards: Mapping[str, Guard]) -> None:
    if any(guard.policy.epsilon is not None and guard.policy.account is None for guard in guards.values()):
        warnings.warn(
            "a policy has a privacy budget and names no account: it lasts as long as this federation",
            DisclosureWarning,
            stacklevel=3,
        )


def _key_of(site: str, study: str, key: PseudonymKey | Mapping[str, PseudonymKey] | None) -> PseudonymKey | None:
    if key is None:
        return PseudonymKey.simulated(study)
    return key if isinstance(key, PseudonymKey) else key.get(site)


def _seals(guards: Mapping[str, Guard]) -> dict[str, MaskingSeal]:
    identities = {name: Identity.generate() for name in guards}
    public = {name: identity.public for name, identity in identities.items()}
    return {
        name: MaskingSeal(
            identity,
            public,
            min_sites=guards[name].policy.min_sites_in_sum,
            n_colluding=guards[name].policy.colluding_sites,
        )
        for name, identity in identities.items()
    }


def _with_policies(
    sites: Mapping[str, Any], policy: Policy | str | Path | Mapping[str, Policy] | None
) -> list[tuple[str, Any, Policy]]:
    return [(name, data, _policy_of(name, policy)) for name, data in _checked(sites).items()]


def _checked(sites: Mapping[Any, Any]) -> Mapping[str, Any]:
    for name in sites:
        check_site_name(name)
    return sites


def _policy_of(name: str, policy: Policy | str | Path | Mapping[str, Policy] | None) -> Policy:
    if policy is None:
        return Policy()
    if isinstance(policy, Policy):
        return policy.of_site(name)
    if isinstance(policy, str | Path):
        return Policy.read(policy).of_site(name)
    if name not in policy:
        raise ConfigurationError("the site has no policy", where=name, mend="Give every site one, or one for all.")
    return policy[name]


def _inside(root: Path | None, site: str, file: str) -> Path | None:
    return None if root is None else root / "sites" / site / file


def _allowed(data: Any, policy: Policy, site: str) -> Any:
    if policy.columns is None:
        return data
    if not hasattr(data, "keep_columns"):
        raise ConfigurationError(
            f"the policy names columns, and {type(data).__name__} has none", where=site, mend="Leave out columns."
        )
    return data.keep_columns(policy.columns)


def _ids(data: Any) -> Iterable[object]:
    ids = getattr(data, "ids", None)
    return () if ids is None else ids
