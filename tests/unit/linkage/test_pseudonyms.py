"""A person has one token at all sites that hold the key, and no other tokens are like it."""

import copy
import datetime
import hashlib
import hmac
import io
import os
import pickle
import re
import traceback
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage import pseudonyms as module
from multicentre.linkage.pseudonyms import PseudonymKey, Pseudonyms, pseudonymise
from multicentre.privacy.identifier_normalisation import combine, normalise
from multicentre.privacy.secret_files import Secret

CONTENT = bytes(range(32))
KEY = PseudonymKey(Secret(CONTENT))
PAGE = Path(__file__).resolve().parents[3] / "docs" / "pseudonyms.md"

identifiers = st.lists(st.none() | st.integers(0, 60).map("P{:03d}".format), max_size=30)


def expected(value, label, content=CONTENT):
    """HMAC-SHA256(key, len16(label) || label || value) by the library, in one piece."""
    message = len(label).to_bytes(2, "big") + label.encode() + value.encode()
    return hmac.digest(content, message, hashlib.sha256).hex()


@pytest.mark.parametrize(
    ("value", "purpose", "kind", "token"),
    [  # printf '\x00\x19fold/v1/hips/rep0/date-v11950-01-31' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0001...1f
        (
            "31.1.1950",
            "fold/v1/hips/rep0",
            "date",
            "a5d41a720be46260bfa235c86e743cb8501efd2e5667aec7727fd94a6dd44f90",
        ),
        ("Strauß", "dup/v1/hips", "name", "01a616e2b395db23c69e245a83223c790ae59c2af98960c07ea5774a3d7c59d7"),
    ],
)
def test_tokens_are_those_of_openssl(value, purpose, kind, token):
    assert pseudonymise([value], KEY, purpose=purpose, kind=kind, date_order="dmy").hex() == [token]


@given(st.binary(min_size=32, max_size=32), st.text(min_size=1, max_size=300), identifiers)
def test_tokens_are_those_of_hmac_over_label_and_value(content, purpose, values):
    purpose = purpose.encode(errors="replace").decode()
    label = f"{purpose}/identifier-v1"
    prefix = len(label.encode()).to_bytes(2, "big") + label.encode()
    found = pseudonymise(values, PseudonymKey(Secret(content)), purpose=purpose)
    assert found.hex() == [
        None if value is None else hmac.digest(content, prefix + value.encode(), "sha256").hex() for value in values
    ]
    assert found.present.tolist() == [value is not None for value in values]
    assert not found.tokens[~found.present].any()


@pytest.mark.parametrize(
    ("kind", "value", "normalised"),
    [
        ("identifier", "00-12a", "0012A"),
        ("name", "Müller", "MULLER"),
        ("date", datetime.date(1950, 1, 31), "1950-01-31"),
        ("nhs-number", "943 476 5919", "9434765919"),
        ("nir", "2 55 08 14 168 025 38", "2550814168025"),
        ("combined", "6:MULLER10:1950-01-31", "6:MULLER10:1950-01-31"),
    ],
)
def test_every_kind_has_its_own_label(kind, value, normalised):
    assert pseudonymise([value], KEY, purpose="p", kind=kind).hex() == [expected(normalised, f"p/{kind}-v1")]


def test_fingerprint():
    assert KEY.fingerprint("hips") == "e2f7e3f8"  # openssl, as above
    assert KEY.fingerprint("hips") == expected("", "fingerprint/v1/hips")[:8]
    assert KEY.fingerprint("hips") != KEY.fingerprint("knees")
    assert KEY.fingerprint("hips") != PseudonymKey.generate().fingerprint("hips")


def tokens_of(values, key=KEY, purpose="p", kind="identifier"):
    return set(pseudonymise(values, key, purpose=purpose, kind=kind).hex()) - {None}


@given(identifiers.filter(any))
def test_keys_purposes_kinds_and_versions_share_no_token(values):
    families = [
        tokens_of(values),
        tokens_of(values, key=PseudonymKey.generate()),
        tokens_of(values, purpose="q"),
        tokens_of(values, purpose="p/identifier-v1"),
        tokens_of(values, kind="name"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NORMALISATION", "v2")
        families.append(tokens_of(values))
    assert len(set().union(*families)) == sum(map(len, families))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Müller", unicodedata.normalize("NFD", "MÜLLER")),
        ("O'Brien", "obrien"),
        ("Smith-Jones", "SMITH JONES"),
        ("Strauß", "strauss"),
    ],
)
def test_spelling_does_not_matter(one, other):
    assert tokens_of([one], kind="name") == tokens_of([other], kind="name")


@given(identifiers, st.randoms(use_true_random=False))
def test_the_common_order_is_that_of_no_sites_rows(values, random):
    shuffled = random.sample(values, len(values))
    here, there = (pseudonymise(column, KEY, purpose="align/v1/hips") for column in (values, shuffled))
    aligned = [[column[row] for row in site.order()] for column, site in ((values, here), (shuffled, there))]
    assert aligned[0] == aligned[1]
    tokens = [here.hex()[row] for row in here.order()]
    assert tokens == sorted(token for token in here.hex() if token is not None)


@given(identifiers)
def test_counts(values):
    found = pseudonymise(values, KEY, purpose="p")
    present = [value for value in values if value is not None]
    assert len(found) == len(values)
    assert found.n_missing == len(values) - len(present)
    assert found.n_duplicates == len(present) - len(set(present))
    assert found.largest_group == max((present.count(value) for value in present), default=0)


def made(*tokens):
    """Return pseudonyms with these bytes as tokens."""
    return Pseudonyms(np.frombuffer(b"".join(tokens), np.uint8).reshape(-1, 32), np.ones(len(tokens), bool))


def test_trailing_zero_bytes_count():
    zero, one = bytes(31), bytes(30) + b"\x01"
    found = made(one + b"\0", zero + b"\1", zero + b"\0", one + b"\0")
    assert found.hex()[2] == "00" * 32
    assert found.n_duplicates == 1
    assert found.order().tolist() == [2, 1, 0, 3]


@given(
    st.lists(st.binary(min_size=32, max_size=32) | st.sampled_from([b"\0" * 32, b"\xff" * 32]), min_size=1, max_size=9),
    st.integers(1, 2**32) | st.sampled_from([1, 256, 4096, 2**32 - 1, 2**32]),
)
def test_buckets_are_those_of_whole_number_arithmetic(tokens, n_buckets):
    found = made(*tokens).buckets(n_buckets)
    assert found.tolist() == [int.from_bytes(token[:8], "big") * n_buckets >> 64 for token in tokens]
    assert found.dtype == np.int64


def test_buckets_of_many_people_are_even():
    found = pseudonymise([f"P{number}" for number in range(20_000)], KEY, purpose="p").buckets(10)
    counts = np.bincount(found, minlength=10)
    assert len(counts) == 10
    assert np.sum((counts - 2000) ** 2 / 2000) < 33.7  # 99.99 % of chi-squared with 9 degrees of freedom


def test_missing_values_have_no_bucket():
    found = pseudonymise([None, "A1", "unknown"], KEY, purpose="p").buckets(8)
    assert found[[0, 2]].tolist() == [-1, -1]
    assert 0 <= found[1] < 8


@pytest.mark.parametrize("n_buckets", [0, -1, 2**32 + 1])
def test_buckets_out_of_range(n_buckets):
    with pytest.raises(ConfigurationError, match=r"n_buckets must be an integer from 1 to 2\*\*32"):
        pseudonymise(["A1"], KEY, purpose="p").buckets(n_buckets)


def test_no_records_at_all():
    found = pseudonymise([], KEY, purpose="p")
    assert (len(found), found.n_missing, found.n_duplicates, found.largest_group) == (0, 0, 0, 0)
    assert found.tokens.shape == (0, 32)
    assert found.buckets(8).shape == found.order().shape == (0,)
    assert found.hex() == []


def test_pseudonyms_print_as_counts_and_cannot_be_changed():
    found = pseudonymise(["A1", None, "a-1"], KEY, purpose="p")
    assert repr(found) == str(found) == "Pseudonyms(3 records, 1 missing, 1 duplicates)"
    for array in (found.tokens, found.present):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_combination_is_missing_where_a_part_is():
    rows = combine([normalise(["Müller", "Ito", None], "name"), normalise(["1950-01-31", None, None], "date")])
    found = pseudonymise(rows, KEY, purpose="p", kind="combined")
    assert found.hex() == [expected("6:MULLER10:1950-01-31", "p/combined-v1"), None, None]


def test_a_key_is_written_and_read(tmp_path):
    key = PseudonymKey.generate()
    key.write(tmp_path / "key.txt")
    assert PseudonymKey.read(tmp_path / "key.txt") == key
    assert PseudonymKey.generate() != key
    assert key != "key"
    if os.name == "posix":
        (tmp_path / "key.txt").chmod(0o644)
        with pytest.raises(ConfigurationError, match="owner"):
            PseudonymKey.read(tmp_path / "key.txt")


def test_a_key_shows_itself_nowhere():
    assert repr(KEY) == str(KEY) == f"{KEY}" == "PseudonymKey(…)"
    assert not hasattr(KEY, "__dict__")
    assert copy.deepcopy(KEY) == KEY
    with pytest.raises(TypeError):
        hash(KEY)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        file = io.BytesIO()
        with pytest.raises((ConfigurationError, TypeError), match="pickle"):
            pickle.dump(KEY, file, protocol=protocol)
        assert CONTENT[:8] not in file.getvalue()


KNOWN = "Zqxjkv-73317"
REFUSED = {
    "an integer": ({"values": [None, 7331773317]}, DataError),
    "a short year": ({"values": ["7/3/31"], "kind": "date", "date_order": "mdy"}, DataError),
    "not combined": ({"values": [KNOWN], "kind": "combined"}, DataError),
    "one text": ({"values": KNOWN}, DataError),
    "an unknown kind": ({"values": [KNOWN], "kind": "surname"}, ConfigurationError),
    "an unknown order": ({"values": [KNOWN], "kind": "date", "date_order": "ydm"}, ConfigurationError),
    "no purpose": ({"values": [KNOWN], "purpose": ""}, ConfigurationError),
    "a long purpose": ({"values": [KNOWN], "purpose": "p" * 65_536}, ConfigurationError),
}


@pytest.mark.parametrize(("arguments", "kind"), REFUSED.values(), ids=REFUSED)
def test_refusals_show_neither_identifier_nor_key(arguments, kind, caplog, capsys):
    with pytest.raises(kind) as caught:
        pseudonymise(**{"key": KEY, "purpose": "p", **arguments})
    error: BaseException | None = caught.value
    said = "".join(traceback.format_exception(caught.value)) + caplog.text
    while error is not None:
        said += f"{error} {error!r} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__
    printed = capsys.readouterr()
    said = (said + printed.out + printed.err).lower()
    assert not any(part in said for part in ("zqxjkv", "73317", "7/3/31", CONTENT.hex()[:12], repr(CONTENT)[2:20]))


SPELLINGS = {
    "rl_reg1": ["fname", "lname"],
    "rldata500": ["fname_c1", "lname_c1"],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_duplicates_of_public_records_are_those_of_the_values(name):
    path = Path(os.environ.get("MULTICENTRE_DATA", "nowhere")) / "record_linkage" / f"{name}.csv.gz"
    if not path.is_file():
        pytest.skip(f"MULTICENTRE_DATA names no folder that holds record_linkage/{name}.csv.gz")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    births = table["by"] + "-" + table["bm"].str.zfill(2) + "-" + table["bd"].str.zfill(2)
    valid = pd.to_datetime(births, errors="coerce")
    found = pseudonymise(births, KEY, purpose="dup/v1/test", kind="date")
    assert found.n_missing == valid.isna().sum()
    assert found.n_duplicates == valid.dropna().duplicated().sum() > 0
    names = [table[column].str.upper().str.replace("[^A-Z]", "", regex=True) for column in SPELLINGS[name]]
    rows = combine([normalise(table[column], "name") for column in SPELLINGS[name]])
    people = pseudonymise(rows, KEY, purpose="dup/v1/test", kind="combined")
    assert people.n_missing == 0
    assert people.n_duplicates == pd.concat(names, axis=1).duplicated().sum() > 0


def test_the_examples_of_the_page_run(capsys):
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    assert capsys.readouterr().out.splitlines() == ["1", "Pseudonyms(3 records, 1 missing, 0 duplicates)"]
