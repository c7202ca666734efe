"""The command line at a site whose first step breaks, with a patient in the text of the exception."""

import functools

from multicentre.cli import main
from multicentre.multiview.agreement import MultiViewPart

_step = MultiViewPart.describe


@functools.wraps(_step.run)
def _broken(part, request):
    raise ValueError(f"the last patient, {part.data.ids[-1]}, is not as she should be")


if __name__ == "__main__":
    object.__setattr__(_step, "run", _broken)
    main()
