"""Nothing in the library, at real sites or in the reproductions of papers can turn bytes into code."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    ROOT / "src" / "multicentre",
    ROOT / "papers" / "src" / "multicentre_papers",
    ROOT / "sites" / "src" / "multicentre_sites",
)
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "code",
    "codeop",
    "jsonpickle",
}
CALLS = {"eval", "exec", "compile", "__import__", "read_pickle", "to_pickle"}


def offences(tree):
    """Yield what in a syntax tree could load code from data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield node.module
        elif isinstance(node, ast.Call):
            yield from _call_offences(node)


def _call_offences(node):
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in CALLS or attribute in {"read_pickle", "to_pickle"}:
        yield name or attribute
    for keyword in node.keywords:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else "computed"
        if keyword.arg == "allow_pickle" and value is not False:
            yield "allow_pickle"
        if keyword.arg == "weights_only" and value is not True:
            yield "weights_only"
    dotted = ast.unparse(node.func) if attribute == "load" else ""
    given = {keyword.arg for keyword in node.keywords}
    if dotted in {"np.load", "numpy.load"} and "allow_pickle" not in given:
        yield "np.load without allow_pickle=False"
    if dotted == "torch.load" and "weights_only" not in given:
        yield "torch.load without weights_only=True"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_no_module_loads_code_from_data(source):
    offences_by_file = {
        str(path.relative_to(source)): list(offences(ast.parse(path.read_text(encoding="utf-8"))))
        for path in sorted(source.rglob("*.py"))
    }
    assert offences_by_file
    assert {path: names for path, names in offences_by_file.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import pickle as harmless",
        "from marshal import loads",
        "from joblib.externals import x",
        "eval('1')",
        "exec(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "pd.read_pickle(path)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
    ],
)
def test_the_search_finds_what_it_looks_for(code):
    assert list(offences(ast.parse(code)))


def test_the_search_lets_safe_loads_pass():
    assert list(offences(ast.parse("np.load(path, allow_pickle=False)\ntorch.load(path, weights_only=True)"))) == []
