"""Deeply nested texts and endless numbers are refused like any other damaged text, with the name of the file."""

import json

import pytest

from multicentre.core.parsing import load_json, load_toml, parse_toml, read_toml
from multicentre.errors import ConfigurationError, IntegrityError, MessageError, MulticentreError
from multicentre.privacy.policy import Policy
from multicentre.privacy.run_ledgers import read_keys
from multicentre.studies.run_folder import RunFolder
from multicentre.studies.study_file import read_study
from multicentre_sites.deployment.analyst_link import Order
from multicentre_sites.deployment.analysts import AdmittedAnalysts
from multicentre_sites.deployment.approvals import read_approvals
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.signed_runs import OpenedRuns
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_register import SiteRegister

DEPTH = 3000  # more than Python's limit of 1,000 calls
DEEP_JSON = "[" * DEPTH + "]" * DEPTH
DEEP_TOML = f"x = {DEEP_JSON}\n"
LONG_KEY = f"x{'.a' * 100_000} = 1"
LONG_NUMBER = "9" * 5000  # more than Python's limit of 4,300 digits


@pytest.mark.parametrize("load", [load_json, load_toml])
@pytest.mark.parametrize("text", [DEEP_JSON, DEEP_TOML, DEEP_TOML.encode(), b"\xff"])
def test_a_text_that_cannot_be_read_is_a_value_error(load, text):
    with pytest.raises(ValueError, match=r"nested|decode|Expect|Invalid"):
        load(text)


@pytest.mark.parametrize(
    "content",
    [
        DEEP_TOML,
        DEEP_TOML.encode(),
        f"x = {LONG_NUMBER}",
        LONG_KEY,
        f"[{LONG_KEY.removesuffix(' = 1')}]",
        b"\xff\xfe",
        "x = ",
        b"x" * (4 * 2**20 + 1),
    ],
)
def test_the_error_names_the_file_and_the_remedy(content):
    with pytest.raises(ConfigurationError, match="the roster must") as caught:
        parse_toml(content, "the roster", "roster.toml")
    assert caught.value.where == "roster.toml"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="the roster cannot be read") as caught:
        read_toml(tmp_path / "roster.toml", "the roster")
    assert caught.value.where == str(tmp_path / "roster.toml")


READERS = {
    "study.toml": read_study,
    "proposal.toml": lambda path: recognise(str(path)),
    "policy.toml": Policy.read,
    "site.toml": lambda path: read_site(path.parent),
    "register.json": SiteRegister.read,
    "analysts.json": lambda path: AdmittedAnalysts(path).cards,
    "approvals.json": lambda path: read_approvals(path.parent),
    "opened.json": lambda path: OpenedRuns(path).close("0" * 32, 0),
    "ledger-keys.json": lambda path: read_keys(path.parent),
    "run.json": lambda path: RunFolder(path.parent).read("run.json"),
}


@pytest.mark.parametrize("value", [DEEP_JSON, "[" * 500 + "]" * 500, LONG_NUMBER], ids=["deep", "parsed", "long"])
@pytest.mark.parametrize("name", READERS)
def test_every_file_may_hold_a_value_that_python_refuses(tmp_path, name, value):
    path = tmp_path / name
    path.write_text(f"x = {value}\n" if name.endswith(".toml") else value)
    path.chmod(0o600)
    with pytest.raises((ConfigurationError, IntegrityError)) as caught:
        READERS[name](path)
    assert str(path) in str(caught.value)


def test_an_order_with_a_deep_study_is_refused():
    with pytest.raises(MessageError):
        Order.unpack(DEEP_JSON.encode())
    with pytest.raises(MulticentreError):
        Order.unpack(json.dumps({"card": {}, "token": "0" * 32, "study": DEEP_TOML}).encode())


def nested(depth, is_table):
    """Return a JSON text with a value inside `depth` tables or lists."""
    return '{"a":' * depth + "1" + "}" * depth if is_table else "[" * depth + "]" * depth


@pytest.mark.parametrize("is_table", [True, False])
def test_values_may_be_nested_a_hundred_levels_deep(is_table):
    load_json(nested(100, is_table))
    with pytest.raises(ValueError, match="nested too deep"):
        load_json(nested(101, is_table))
    # The table of the file itself is the first level.
    as_toml = nested(99, is_table).replace('"a":', "a=")
    assert list(load_toml(f"x = {as_toml}")) == ["x"]
    as_toml = nested(100, is_table).replace('"a":', "a=")
    with pytest.raises(ValueError, match="nested too deep"):
        load_toml(f"x = {as_toml}")


@pytest.mark.parametrize("parts", [100, 101])
def test_a_long_key_is_refused_before_it_is_parsed(parts):
    key = ".".join(["a", '"b c"', "'d'"] * 40).split(".")[:parts]
    text = " . ".join(key) + " = 1"
    if parts == 100:
        assert list(load_toml(text)) == ["a"]
    else:
        with pytest.raises(ValueError, match="nested too deep"):
            load_toml(text)


@pytest.mark.parametrize("value", [3, "text", None, 1.5, True])
def test_a_json_text_may_be_a_single_value(value):
    assert load_json(json.dumps(value)) == value


def test_texts_and_bytes_are_read_alike():
    assert load_json(b'{"a": ["\xc3\xa9"]}') == load_json('{"a": ["é"]}') == {"a": ["é"]}
    assert load_toml(b'a = ["\xc3\xa9"]') == load_toml('a = ["é"]') == {"a": ["é"]}


def test_a_file_has_at_most_four_mebibytes():
    largest = b"#" * (4 * 2**20)
    assert parse_toml(largest, "the roster", "roster.toml") == {}
    with pytest.raises(ConfigurationError) as caught:
        parse_toml(b"#" * (6 * 2**20), "the roster", "roster.toml")
    assert caught.value.what == "the roster must have at most 4 MiB; got 6 MiB"
    with pytest.raises(ConfigurationError, match="must have at most 4 MiB; got 4 MiB"):
        parse_toml(largest + b"#", "the roster", "roster.toml")


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (b"\xff\xfe", "the roster must be UTF-8; got another encoding", "Save it as UTF-8."),
        ("x = ", "the roster must be valid TOML; got another text", "Invalid value (at end of document)."),
        (DEEP_TOML, "the roster must be valid TOML; got another text", "Values are nested too deep."),
        (f"x = {LONG_NUMBER}", "the roster must be valid TOML; got another text", "A number has too many digits."),
    ],
)
def test_each_fault_of_a_file_has_its_remedy(content, what, hint):
    with pytest.raises(ConfigurationError) as caught:
        parse_toml(content, "the roster", "roster.toml")
    assert (caught.value.what, caught.value.hint) == (what, hint)


def test_a_file_is_read(tmp_path):
    (tmp_path / "roster.toml").write_text("sites = 3")
    assert read_toml(tmp_path / "roster.toml", "the roster") == {"sites": 3}
    with pytest.raises(ConfigurationError) as caught:
        read_toml(tmp_path / "absent", "the roster")
    assert caught.value.hint == "No such file or directory."
