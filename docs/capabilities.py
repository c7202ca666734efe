"""Write the table of capabilities in docs/guides/which-method.md from the classes.

python docs/capabilities.py
"""

import inspect
from pathlib import Path

from multicentre import regression, survival
from multicentre.estimator.base import FederatedEstimator

PAGE = Path(__file__).resolve().parent / "guides" / "which-method.md"
BEGIN, END = "<!-- capabilities: written by docs/capabilities.py -->\n", "<!-- end of capabilities -->"

# Parameters or methods of the public classes, by capability. A class has one of them, or its `lacks` says why not.
CAPABILITIES: dict[str, tuple[str, ...]] = {
    "formula": ("formula",),
    "offset": ("offset",),
    "weights": ("weights",),
    "robust errors": ("errors", "robust"),
    "clusters": ("cluster",),
    "ridge penalty": ("alpha", "alphas"),
    "elastic net": ("l1_ratio",),
    "penalty by cross-validation": ("alphas",),
    "estimates by site": ("by_site",),
    "tests of terms": ("term_tests",),
    "missing values": ("missing",),
}
MODELS: tuple[type[FederatedEstimator], ...] = (
    regression.FedLinearRegression,
    regression.FedLogisticRegression,
    regression.FedPoissonRegression,
    regression.FedGLM,
    regression.FedGLMCV,
    regression.FedMultinomialRegression,
    regression.FedOrdinalRegression,
    regression.FedLinearMixedModel,
    regression.FedGLMM,
    survival.FedCox,
    survival.FedMixedCox,
)


def has(model: type[FederatedEstimator], capability: str) -> bool:
    """Return True if a class has a parameter or a method of a capability."""
    parameters = inspect.signature(model).parameters
    return any(name in parameters or hasattr(model, name) for name in CAPABILITIES[capability])


def lacking(model: type[FederatedEstimator]) -> dict[str, str]:
    """Return the reasons for the capabilities that a class lacks."""
    return {capability: model.lacks[capability] for capability in CAPABILITIES if not has(model, capability)}


def table() -> str:
    """Return the table, and below it the reasons by number."""
    reasons = list(dict.fromkeys(reason for model in MODELS for reason in lacking(model).values()))
    lines = [f"| model | {' | '.join(CAPABILITIES)} |", f"|---|{'---|' * len(CAPABILITIES)}"]
    for model in MODELS:
        missing = lacking(model)
        cells = [f"no ({reasons.index(missing[one]) + 1})" if one in missing else "yes" for one in CAPABILITIES]
        lines.append(f"| `{model.__name__}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}." for number, reason in enumerate(reasons, start=1)), ""])


def page() -> str:
    """Return the page with the present table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
