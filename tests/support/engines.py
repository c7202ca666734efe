"""What stands behind a federation in this process."""

import dataclasses

from multicentre.core.session import Session


def runtimes_of(federation):
    """Return the site's side of an in-process federation, by site, however its engine is wrapped."""
    engine = federation.engine
    while hasattr(engine, "_engine"):
        engine = engine._engine
    return engine._runtimes


def with_engine(handle, engine):
    """Return a federation, or a session, whose calls another engine carries."""
    if isinstance(handle, Session):
        handle.consortium = dataclasses.replace(handle.consortium, engine=engine)
        return handle
    return dataclasses.replace(handle, engine=engine)
