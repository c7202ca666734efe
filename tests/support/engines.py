"""What stands behind a federation in this process."""


def runtimes_of(federation):
    """Return the site's side of an in-process federation, by site, however its engine is wrapped."""
    engine = federation.engine
    while hasattr(engine, "_engine"):
        engine = engine.engine
    return engine._runtimes
