"""Federations as created by users: the combination of core, privacy and engines."""

from __future__ import annotations

import dataclasses
import json
import secrets
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from multicentre.core.calls import Engine
from multicentre.core.consortium import Consortium
from multicentre.core.differencing import EarlierAnswers
from multicentre.core.noise_plan import Plan
from multicentre.core.rounds import Listener
from multicentre.core.run_terms import Quorum, RefusingSites, Terms
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import SitePart
from multicentre.core.storage import Store, check_site_name, write_atomically
from multicentre.core.summation import PlainSummation, Summation
from multicentre.engines.faults import Faults, Faulty
from multicentre.engines.head_exchange import HeadExchange
from multicentre.engines.in_process import InProcess
from multicentre.engines.remote.engine import PATIENCE_S, RemoteEngine
from multicentre.engines.remote.opening import Opening, Sign
from multicentre.engines.remote.socket import Carrier
from multicentre.errors import ConfigurationError, DisclosureWarning, MessageError
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.card import DisclosureCard, disclosure_card
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.ledger_witnesses import HEADS, HeadRecord, Witness
from multicentre.privacy.patient_counts import Counted, people_of
from multicentre.privacy.policy import Policy, least_in_total, loosest_of, simulated_policy
from multicentre.privacy.run_ledgers import SiteLedgers
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.rounds import MaskedSummation
from multicentre.privacy.secure_sum.site import MaskingSeal


@dataclass(frozen=True, eq=False, repr=False)
class Federation(Consortium):
    """The sites of a study; see :meth:`in_process` and :meth:`over`.

    Parameters
    ----------
    guards : mapping of str to Guard
        Guards of the sites in this process.
    site_facts : mapping of str to mapping
        Version, schema and policy requirements reported by sites on separate machines.
    ledger_notices : mapping of str to str
        Losses of ledgers of which readers of the results must know, by site.
    """

    guards: Mapping[str, Guard] = field(default_factory=dict)
    site_facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ledger_notices: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def in_process(
        cls,
        sites: Mapping[str, Any],
        *,
        policy: Policy | str | Path | Mapping[str, Policy] | None = None,
        secure_sum: bool = True,
        strict: bool = False,
        study: str = "study",
        agreed: str = "",
        quorum: Quorum = "all",
        time_limit_s: float | None = None,
        sites_per_patient: int = 1,
        one_row_per_patient: bool = False,
        refusing_sites: RefusingSites = "stop",
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
            One policy for all sites (an object or a ``policy.toml``), or one by site's name. By default that of a new
            site (``multicentre site keygen``), except that sums over two sites are permitted, and answers about records
            without ids are not compared.
        secure_sum : bool, default True
            Mask the sums: the coordinator receives the sum and no summand. A federation of one site sends unmasked
            sums. In unmasked sums, each site's cells must meet its policy's minimum.
        strict : bool, default False
            Encode and decode every message in the wire format.
        study : str
            Name written to every ledger.
        agreed : str
            Hash of the terms of the study (``multicentre.studies.terms.digest_of``), written to every ledger.
        quorum : "all" or int, default "all"
            Number of sites that must answer.
        time_limit_s : float, optional
            Seconds that a site may take for one step.
        sites_per_patient : int, default 1
            Maximum number of sites with records of one patient; the privacy budget is spent at each of them.
        one_row_per_patient : bool, default False
            State that every record of a site is of another patient. Needed for a privacy budget where data have neither
            `ids` nor identifiers; without either, minimum counts are of records.
        refusing_sites : {"stop", "leave_out"}, default "stop"
            End a fit when a site's policy or guard refuses, or make it without the site. The fit's ``left_out_`` names
            such sites and their reasons. ``quorum`` says how many sites must remain; "all" means all that do not
            refuse.
        pseudonym_key : PseudonymKey or mapping of str to PseudonymKey, optional
            Key under which sites make pseudonyms of identifiers, one for all or one by site's name. The default is
            derived from the study's name, so that folds repeat. It is not secret, which is acceptable because all
            records are in this process. Sites on separate machines need a random key.
        folder : path, optional
            Folder of checkpoints, the sites' states and ledgers, from which a run can be resumed. An earlier run is
            resumed only under the same terms. Each site gets a new signing key; ``ledger-keys.json``
            lists the public halves, and no file holds a private one.
        listener : Listener, optional
            Receives progress events (rounds, losses of sites).
        faults : Faults, optional
            Delays and losses, for tests.

        Raises
        ------
        ConfigurationError
            No site, a name that cannot be a folder's, a quorum that cannot be met, or `one_row_per_patient` where an
            identifier repeats.
        IntegrityError
            The folder holds a ledger that was changed or shortened, or that names other terms.

        Examples
        --------
        >>> import multicentre as mc
        >>> labelled = mc.datasets.simulate_sd(random_state=1)
        >>> sites = mc.datasets.split_scenario(labelled, "IID", n_sites=3, random_state=0)
        >>> data = {name: site.data for name, site in sites.items()}
        >>> mc.Federation.in_process(data, policy=mc.Policy(min_patients=20))
        Federation(centre-1, centre-2, centre-3; sums masked, quorum all)
        """
        root = None if folder is None else Path(folder)
        with_policies = _with_policies(sites, policy)
        masked = secure_sum and len(with_policies) > 1
        site_ledgers = SiteLedgers(root, sites, study)
        guards = {
            name: new_guard(name, data, policy_here, site_ledgers.ledgers[name], one_row_per_patient)
            for name, data, policy_here in with_policies
        }
        _warn_of_short_memory(guards)
        site_ledgers.hold_terms(
            {name: guard.policy for name, guard in guards.items()},
            study=study,
            agreed=agreed,
            secure_sum=masked,
            quorum=quorum,
            refusing_sites=refusing_sites,
            sites_per_patient=sites_per_patient,
            one_row_per_patient=one_row_per_patient,
        )
        runtimes = {
            name: open_site(
                name,
                data,
                guards[name],
                identity=site_ledgers.identities[name] if masked else None,
                peers=site_ledgers.public,
                store=None if root is None else Store(root / "sites" / name / "state"),
                key=_key_of(name, study, pseudonym_key),
                witness=site_ledgers.witness(name),
            )
            for name, data in sites.items()
        }
        here, record = InProcess(runtimes, strict=strict), site_ledgers.record()
        engine: Engine = here if record is None else HeadExchange(here, record)
        policies = [guard.policy for guard in guards.values()]
        return cls(
            Faulty(engine, faults) if faults else engine,
            guards=guards,
            terms=Terms(
                study, quorum, time_limit_s, sites_per_patient, refusing_sites, _counted(guards.values()), agreed
            ),
            summation=_summation(masked, policies),
            store=None if root is None else Store(root / "checkpoints"),
            listener=listener or Listener(),
            least_in_total=least_in_total(policies),
        )

    @classmethod
    def over(
        cls,
        carrier: Carrier,
        *,
        secure_sum: bool = True,
        study: str = "study",
        agreed: str = "",
        quorum: Quorum = "all",
        time_limit_s: float | None = None,
        patience_s: float = PATIENCE_S,
        sites_per_patient: int = 1,
        refusing_sites: RefusingSites = "stop",
        folder: str | Path | None = None,
        listener: Listener | None = None,
        faults: Faults | None = None,
        sign: Sign | None = None,
        protocol: Mapping[str, str] | None = None,
    ) -> Self:
        """Make a federation whose sites are separate processes, usually on separate machines.

        Parameters
        ----------
        carrier : Carrier
            Transport of requests to the sites, for example Flower.
        secure_sum, study, quorum, time_limit_s, sites_per_patient, refusing_sites, listener, faults
            As for :meth:`in_process`.
        agreed : str
            Hash of the terms of the study (``multicentre.studies.terms.digest_of``); a site that approved others
            refuses.
        patience_s : float, default 120
            Seconds that a site may be unreachable before it counts as lost.
        folder : path, optional
            Folder of checkpoints, from which a run can be resumed. Sites store their own states.
        sign : callable, optional
            Signs the opening of the run with the analyst's key.
        protocol : mapping of str to str, optional
            Number of the wire protocol and digest of each method of the study, by which a site names a difference.

        Raises
        ------
        MulticentreError
            Sites refuse to take part, and `refusing_sites` is "stop". The carrier is closed.
        """
        root = None if folder is None else Path(folder)
        run, attempt = _run_of(root)
        masked = secure_sum and len(carrier.sites) > 1
        opening = Opening(run, attempt, study, agreed, carrier.sites, masked, protocol=protocol or {})
        try:
            opening = opening if sign is None else dataclasses.replace(opening, request=sign(opening))
        except BaseException:
            carrier.close()
            raise
        engine = RemoteEngine(carrier, opening, patience_s=patience_s, listener=listener)
        record = None if root is None else HeadRecord(root / HEADS, Identity.generate(), study=study)
        carrying: Engine = engine if record is None else HeadExchange(engine, record)
        try:
            away, refusals = engine.open(time_limit_s)
            for site, error in away.items():
                (listener or Listener()).site_lost(site, str(error))
            if record is not None:
                engine.witness(record.recall(engine.facts))
            policies = [_reported_policy(facts) for facts in engine.facts.values()]
            federation = cls(
                Faulty(carrying, faults) if faults else carrying,
                terms=Terms(
                    study,
                    quorum,
                    time_limit_s,
                    sites_per_patient,
                    refusing_sites,
                    _counted_by(engine.facts.values()),
                    agreed,
                ),
                summation=_summation(masked, policies),
                store=None if root is None else Store(root / "checkpoints"),
                listener=listener or Listener(),
                least_in_total=least_in_total(policies),
                name=run[:_SHORT],
                site_facts=engine.facts,
                ledger_notices={} if record is None else record.notices,
            )
            return federation.without_refusing(refusals) if refusals else federation
        except BaseException:
            engine.close()
            raise

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """The ledger of each site in this process; those of other machines stay there."""
        return {name: guard.ledger for name, guard in self.guards.items()}

    def card(
        self,
        part: type[SitePart],
        plan: Plan | None = None,
        planned_steps: Collection[str] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> DisclosureCard:
        """Return what a method would let out of these sites.

        Parameters
        ----------
        part : type
            The method's site part.
        plan : Plan, optional
            The noise of its releases.
        planned_steps : collection of str, optional
            Names of the steps that the fit may request; all that the part offers otherwise.
        parameters : mapping, optional
            Parameters of the estimator, some of which fix the length of an array.
        """
        # Sites of other machines do not report exact_times: the card shows the most that can leave.
        policies = [guard.policy for guard in self.guards.values()] or [
            dataclasses.replace(_reported_policy(one), exact_times=True) for one in self.site_facts.values()
        ]
        return disclosure_card(
            part,
            protection=self.protection,
            n_sites=len(self.sites),
            policy=loosest_of(policies),
            plan=plan,
            sites_per_patient=self.terms.sites_per_patient,
            requested=planned_steps,
            counted=self.terms.counted,
            parameters=parameters,
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


def open_site(
    name: str,
    data: Any,
    guard: Guard,
    *,
    identity: Identity | None = None,
    peers: Mapping[str, bytes] | None = None,
    store: Store | None = None,
    key: PseudonymKey | None = None,
    earlier_answers: EarlierAnswers | None = None,
    terms: str = "",
    witness: Witness | None = None,
) -> SiteRuntime:
    """Return what answers the calls to one site.

    Parameters
    ----------
    name : str
    data : data
        Of the site; columns that its policy does not allow are left out here.
    guard : Guard
    identity : Identity, optional
        The site's signing key; without it sums leave unmasked.
    peers : mapping of str to bytes, optional
        Public identities of the sites whose masks it trusts.
    store : Store, optional
        Where the states of site parts are kept between rounds.
    key : PseudonymKey, optional
    earlier_answers : EarlierAnswers, optional
        Records that earlier runs over the same data answered for.
    terms : str, optional
        Hash of the study that the site agreed to.
    witness : Witness, optional
        What keeps the ends of the peers' ledgers.
    """
    policy = guard.policy
    least, colluding = policy.min_sites_in_sum, policy.colluding_sites
    seal = None if identity is None else MaskingSeal(identity, peers or {}, min_sites=least, n_colluding=colluding)
    allowed = _allowed(data, policy, name)
    return SiteRuntime(
        name,
        allowed,
        guard,
        seal=seal,
        store=store,
        key=key,
        earlier_answers=earlier_answers,
        terms=terms,
        witness=witness,
    )


def new_guard(name: str, data: Any, policy: Policy, ledger: Ledger, one_row_per_patient: bool = False) -> Guard:
    """Return the guard of a site, which counts the persons to whom its records belong.

    Raises
    ------
    ConfigurationError
        The study states that there is one row per patient, and an identifier repeats.
    """
    people = people_of(data, name, one_row_per_patient=one_row_per_patient)
    # The length of data without `take` (a mapping, for example) does not count records.
    n_records = len(data) if hasattr(data, "take") else None
    return Guard(policy, ledger, people, site=name, n_records=n_records)


def facts_of(policy: Policy) -> dict[str, Any]:
    """Return the fields of a site's policy that a coordinator needs before a run."""
    return {name: getattr(policy, name) for name in _OPENING_FIELDS}


def _reported_policy(facts: Mapping[str, Any]) -> Policy:
    try:
        return Policy(**{name: facts[name] for name in _OPENING_FIELDS})
    except (KeyError, TypeError):
        raise MessageError(
            "the opening must contain the fields of the site's policy; got others", where="opening"
        ) from None


def _summation(masked: bool, policies: Sequence[Policy]) -> Summation:
    colluding = max((policy.colluding_sites for policy in policies), default=0)
    return MaskedSummation(n_colluding=colluding) if masked else PlainSummation()


def _run_of(root: Path | None) -> tuple[str, int]:
    """Return the name of a run and the number of times it was resumed; count this time in its folder."""
    if root is None:
        return secrets.token_hex(16), 0
    path = root / "checkpoints" / "run.json"
    run_file_content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"run": secrets.token_hex(16)}
    run, attempt = str(run_file_content["run"]), int(run_file_content.get("attempt", -1)) + 1
    write_atomically(path, json.dumps({"run": run, "attempt": attempt}).encode())
    return run, attempt


def _with_policies(
    sites: Mapping[str, Any], policy: Policy | str | Path | Mapping[str, Policy] | None
) -> list[tuple[str, Any, Policy]]:
    checked = _checked(sites)
    if policy is None:
        # Sums over two sites are permitted, since in small examples a view is often at two sites only.
        policy = simulated_policy(2)
    return [(name, data, _policy_of(name, policy)) for name, data in checked.items()]


def _checked(sites: Any) -> Mapping[str, Any]:
    if not isinstance(sites, Mapping):
        raise ConfigurationError(
            f"sites must be a mapping of a name to the data of each site; got {type(sites).__name__}",
            hint='Pass {"lyon": data_of_lyon, "porto": data_of_porto}, for example.',
        )
    for name in sites:
        check_site_name(name)
    return sites


def _policy_of(name: str, policy: Policy | str | Path | Mapping[str, Policy]) -> Policy:
    if isinstance(policy, Policy):
        return policy.of_site(name)
    if isinstance(policy, str | Path):
        return Policy.read(policy).of_site(name)
    if name not in policy:
        raise ConfigurationError("the site has no policy", where=name, hint="Give every site one, or one for all.")
    return policy[name]


def _allowed(data: Any, policy: Policy, site: str) -> Any:
    if policy.columns is None:
        return data
    if not hasattr(data, "keep_columns"):
        raise ConfigurationError(
            f"the policy names columns, and {type(data).__name__} has none", where=site, hint="Leave out columns."
        )
    return data.keep_columns(policy.columns)


# 12 of the 32 hexadecimal digits (48 bits) identify a run: names stay short, and a collision is improbable.
_SHORT = 12
_OPENING_FIELDS = (
    "min_patients",
    "min_patients_in_total",
    "colluding_sites",
    "min_sites_in_sum",
    "secure_sums_only",
    "relations",
)


def _counted(guards: Iterable[Guard]) -> Counted:
    return "records" if any(guard.people.counted == "records" for guard in guards) else "patients"


def _counted_by(facts: Iterable[Mapping[str, Any]]) -> Counted:
    """Return what sites of other machines count: records, unless each of them states that it counts patients."""
    return "patients" if all(site_facts.get("counted") == "patients" for site_facts in facts) else "records"
