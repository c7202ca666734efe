"""The command line at a site that answers with numbers of patients below 0, past its own guard."""

import dataclasses
import functools

from multicentre.cli import main
from multicentre.core.site_runtime import SiteRuntime

_protect = SiteRuntime._protect


@functools.wraps(_protect)
def _lying(runtime, call, release):
    counted = {
        name: getattr(release, name) for name, field in release.declarations().items() if field.unit == "patients"
    }
    return _protect(runtime, call, dataclasses.replace(release, **{name: 0.0 * n - 1.0 for name, n in counted.items()}))


if __name__ == "__main__":
    SiteRuntime._protect = _lying
    main()
