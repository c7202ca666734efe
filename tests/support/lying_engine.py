"""An engine in which one site says what a test likes; masks and guards of all others are honest."""

from multicentre.core.messages import Message


class Lying:
    """Carries calls as another engine does, and turns one site's answers.

    Parameters
    ----------
    engine : Engine
    site : str
    says : callable
        From a call and the honest answer to what arrives; not called for errors.
    """

    def __init__(self, engine, site, says):
        self.engine, self.site, self.says = engine, site, says
        self.sites = engine.sites

    def exchange(self, calls, time_limit_s):
        outcomes = self.engine.exchange(calls, time_limit_s)
        honest = outcomes.get(self.site)
        if isinstance(honest, Message):
            outcomes[self.site] = self.says(calls[self.site], honest)
        return outcomes

    def run_command(self, command, sites):
        self.engine.run_command(command, sites)

    def close(self):
        self.engine.close()
