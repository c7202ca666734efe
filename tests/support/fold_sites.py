"""Sites whose records are divided into folds, and the folds of an in-process federation, which nobody else can see."""

import numpy as np

import multicentre as mc

EXACT = mc.Policy(min_patients=0)


def people_sites(n=100, n_sites=3, *, shared=25, rate=0.4, seed=0):
    """Return sites with `shared` people in common with the site before, and their people by site."""
    rng = np.random.default_rng(seed)
    people = {f"site-{s}": np.arange(n) + s * (n - shared) for s in range(n_sites)}
    return {name: table(rng, numbers, rate) for name, numbers in people.items()}, people


def table(rng, people, rate=0.4, **names):
    """Return records of people, the identifier of each of them its number as text."""
    X = rng.normal(size=(len(people), 2))
    given = names or {"identifier": [f"p{number}" for number in people]}
    return mc.data.TableData(X, (rng.random(len(X)) < rate).astype(int), given, classes=["0", "1"])


def federate(sites, **options):
    """Return a federation that counts exactly, unless told otherwise."""
    return mc.Federation.in_process(sites, **{"policy": EXACT, **options})


def folds_of(plan):
    """Return the fold of every record by site, as only a process that holds all sites can."""
    session, engine = plan.session.name, plan.session.engine
    found = {}
    for name, runtime in getattr(engine, "_engine", engine)._runtimes.items():
        parts = [part for (of, _), part in runtime.sessions.parts.items() if of == session and part.folds is not None]
        if parts:
            found[name] = parts[0].folds
    return found


def violations(folds, people):
    """Return how many people have records in several folds."""
    fold = np.concatenate([folds[site] for site in people])
    person = np.concatenate([people[site] for site in people])
    seen = {}
    for one, where in zip(person.tolist(), fold.tolist(), strict=True):
        if where >= 0:
            seen.setdefault(one, set()).add(where)
    return sum(len(where) > 1 for where in seen.values())
