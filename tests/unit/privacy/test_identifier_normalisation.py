"""Identifiers are spelt alike at every site, and nothing is guessed."""

# ruff: noqa: RUF001 (names of people)

import datetime
import traceback
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError, DataError, MulticentreError
from multicentre.privacy.identifier_normalisation import (
    combine,
    normalise,
    normalise_date,
    normalise_identifier,
    normalise_name,
    normalise_nhs_number,
    normalise_nir,
)

NOTHING = [None, float("nan"), np.nan, np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "D"), "", "  ", "-", "?"]
PLACEHOLDERS = ["UNKNOWN", "unknown", "Not known", "N/A", "n.a.", "NA", "None", "nan", "<NA>", "null", "unbekannt"]
EVERY_RULE = [normalise_name, normalise_identifier, normalise_date, normalise_nhs_number, normalise_nir]
latin = st.text(st.sampled_from("aZ09éÉüßẞæÆøØłŁđÐðþÞœħŧŋəıİſǰŉﬁ²½-'’ʼ .\u0301\u0308\u200d"), max_size=12)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Müller", "MULLER"),
        ("MÜLLER ", "MULLER"),
        ("Strauß", "STRAUSS"),
        ("STRAUẞ", "STRAUSS"),
        ("O'Connor", "OCONNOR"),
        ("O’Connor", "OCONNOR"),
        ("Oʼconnor", "OCONNOR"),
        ("Jean-Pierre", "JEANPIERRE"),
        ("van der  Berg", "VANDERBERG"),
        ("Łukasz", "LUKASZ"),
        ("Đorđe", "DORDE"),
        ("Søren Ærø", "SORENAERO"),
        ("Þórður", "THORDUR"),
        ("Œuvrard", "OEUVRARD"),
        ("Ħaż-Żebbuġ", "HAZZEBBUG"),
        ("İpek Işık", "IPEKISIK"),
        ("Nguyễn Thị", "NGUYENTHI"),
        ("Ａｎｎａ", "ANNA"),
        ("ﬁona", "FIONA"),
        ("Hawaiʻi", "HAWAII"),
        ("Li", "LI"),
        ("O", "O"),
    ],
)
def test_names(value, expected):
    assert normalise_name(value) == expected
    assert normalise_name(unicodedata.normalize("NFD", value)) == expected


@pytest.mark.parametrize("rule", EVERY_RULE)
@pytest.mark.parametrize("value", [*NOTHING, *PLACEHOLDERS], ids=repr)
def test_missing(rule, value):
    assert rule(value) is None


@pytest.mark.parametrize("value", ["0000", "9999", "00-00-00", "xxxx", "1111111111", "AaAa"])
def test_equal_characters_are_placeholders(value):
    assert normalise_identifier(value) is None
    assert normalise_name(value) is None


def test_short_identifiers_of_equal_characters_are_kept():
    assert normalise(["0", "7", "11", "222"], "identifier") == ["0", "7", "11", "222"]
    assert normalise(["O", "Aa", "xxx"], "name") == ["O", "AA", None]


@pytest.mark.parametrize("value", ["Иван", "Παπαδόπουλος", "李小龙", "Ж123", "Аnna", "٣٤٥"])
def test_letters_of_another_script_make_a_value_missing_not_shorter(value):
    assert normalise_name(value) is None


def test_leading_zeros_and_digits_stay():
    assert normalise_identifier("000 120-a") == "000120A"
    assert normalise_identifier("120a") == "120A"


@pytest.mark.slow
@given(latin)
def test_names_and_identifiers_are_settled_after_once(text):
    for rule in (normalise_name, normalise_identifier):
        once = rule(text)
        assert once is None or rule(once) == once
        assert once is None or (once.isascii() and once.isalnum() and once == once.upper())


@given(latin)
def test_composition_and_case_do_not_matter(text):
    expected = normalise_name(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert normalise_name(unicodedata.normalize(form, text)) == expected
    assert normalise_name(text.upper()) == expected
    assert normalise_name(text.lower()) == expected
    assert normalise_name(text.swapcase()) == expected


@given(st.text(max_size=12))
def test_any_text_is_taken(text):
    for rule in (normalise_name, normalise_identifier, normalise_nhs_number, normalise_nir):
        found = rule(text)
        assert found is None or found.isalnum()


@pytest.mark.parametrize(
    ("value", "order"),
    [
        ("1950-01-31", "iso"),
        ("19500131", "iso"),
        ("1950-1-31", "iso"),
        ("1950-01-31T00:00:00", "iso"),
        ("1950-01-31 23:59:59+02:00", "iso"),
        (" 1950-01-31\n", "iso"),
        ("１９５０-01-31", "iso"),
        ("1950/01/31", "ymd"),
        ("1950.1.31", "ymd"),
        ("31.1.1950", "dmy"),
        ("31/01/1950 00:00", "dmy"),
        ("31 01 1950", "dmy"),
        ("31011950", "dmy"),
        ("1/31/1950", "mdy"),
        ("01311950", "mdy"),
        (datetime.date(1950, 1, 31), "dmy"),
        (datetime.datetime(1950, 1, 31, 23, 59, tzinfo=datetime.UTC), "mdy"),
        (pd.Timestamp("1950-01-31 12:00"), "iso"),
        (np.datetime64("1950-01-31"), "iso"),
        (np.datetime64("1950-01-31T23:00:00", "ns"), "iso"),
        (np.str_("1950-01-31"), "iso"),
    ],
)
def test_dates(value, order):
    assert normalise_date(value, order) == "1950-01-31"


def test_day_and_month_follow_the_declared_order():
    assert normalise_date("02/01/1950", "dmy") == "1950-01-02"
    assert normalise_date("02/01/1950", "mdy") == "1950-02-01"


@pytest.mark.parametrize(
    ("value", "order"),
    [
        ("1950-02-30", "iso"),
        ("1950-13-01", "iso"),
        ("1950-00-00", "iso"),
        ("1950/01/31", "iso"),
        ("31/01/1950", "iso"),
        ("31/01/1950", "mdy"),
        ("31/01-1950", "dmy"),
        ("1950-01-31", "dmy"),
        ("1950-01-31x", "iso"),
        ("February 1950", "iso"),
        ("1900-01-01", "iso"),
        ("01/01/1901", "dmy"),
        ("9999-12-31", "iso"),
        ("0001-01-01", "iso"),
        ("1753-01-01", "iso"),
        ("1899-12-30", "iso"),
        ("1849-12-31", "iso"),
        ("2200-01-01", "iso"),
        (datetime.date(1900, 1, 1), "iso"),
        (pd.Timestamp("1901-01-01"), "iso"),
        (datetime.date.max, "iso"),
        (datetime.date.min, "iso"),
    ],
)
def test_invalid_dates_and_placeholders_are_missing(value, order):
    assert normalise_date(value, order) is None


@pytest.mark.parametrize("value", ["31/01/50", "1-1-50", "50-01-31", "50.1.3", "500131", "31/01/50 10:00"])
@pytest.mark.parametrize("order", ["iso", "ymd", "dmy", "mdy"])
def test_two_digit_years_are_refused(value, order):
    with pytest.raises(DataError, match="two-digit year"):
        normalise_date(value, order)


@given(st.dates(datetime.date(1905, 1, 1), datetime.date(2199, 12, 31)))
def test_every_spelling_of_a_date_is_one(date):
    y, m, d = f"{date:%Y}", f"{date:%m}", f"{date:%d}"
    spellings = {"iso": f"{y}-{m}-{d}", "ymd": f"{y}/{m}/{d}", "dmy": f"{d}.{m}.{y}", "mdy": f"{m} {d} {y}"}
    compact = {"iso": y + m + d, "ymd": y + m + d, "dmy": d + m + y, "mdy": m + d + y}
    for order, text in [*spellings.items(), *compact.items()]:
        assert normalise_date(text, order) == date.isoformat()
    assert normalise_date(date) == normalise_date(pd.Timestamp(date)) == date.isoformat()
    assert normalise_date(normalise_date(date)) == date.isoformat()


def nhs_check_digit(nine):
    """The digit that makes the sum of position-weighted digits a multiple of 11, found by trial."""
    digits = [int(one) for one in nine]
    total = sum((10 - position) * digit for position, digit in enumerate(digits))
    return [check for check in range(10) if (total + check) % 11 == 0]


@given(st.text("0123456789", min_size=9, max_size=9).filter(lambda text: len(set(text)) > 1))
def test_nhs_numbers_with_their_check_digit_are_taken_and_no_others(nine):
    taken = [check for check in range(10) if normalise_nhs_number(f"{nine}{check}") is not None]
    assert taken == nhs_check_digit(nine)


@pytest.mark.parametrize("value", ["943 476 5919", "943-476-5919", "9434765919", "4010232137", "0000000192"])
def test_nhs_numbers(value):
    digits = "".join(one for one in value if one.isdigit())
    valid = int(digits[9]) in nhs_check_digit(digits[:9])
    assert normalise_nhs_number(value) == (digits if valid else None)
    assert valid is (value != "0000000192")


@pytest.mark.parametrize("value", ["943476591", "94347659190", "94347659I9", "0000000000", "9999999999"])
def test_what_is_no_nhs_number(value):
    assert normalise_nhs_number(value) is None


def nir_key(body):
    """Insee's other wording: letters are 0, and a million (2A) or two (2B) are taken away."""
    number = int(body.replace("A", "0").replace("B", "0"))
    return 97 - (number - 1_000_000 * ("A" in body) - 2_000_000 * ("B" in body)) % 97


nirs = st.builds(
    "{}{}{}{}".format,
    st.sampled_from("12"),
    st.integers(0, 9912).map(lambda number: f"{number:04d}"),
    st.sampled_from(["01", "75", "2A", "2B", "99", "20"]),
    st.integers(1, 999_998).map(lambda number: f"{number:06d}"),
)


@given(nirs)
def test_nir_with_its_key_is_taken_and_with_no_other(body):
    taken = [key for key in range(100) if normalise_nir(f"{body}{key:02d}") is not None]
    assert taken == [nir_key(body)]
    assert normalise_nir(f"{body.lower()} {nir_key(body):02d}") == body
    assert normalise_nir(body) == body


@pytest.mark.parametrize(
    "value", ["2550814168025 3", "255081416802", "5550814168025", "2550814168A25", "2 55 08 2C 168 025"]
)
def test_what_is_no_nir(value):
    assert normalise_nir(value) is None


def test_corsican_nir():
    assert normalise_nir("1 70 05 2A 004 012 " + f"{nir_key('170052A004012'):02d}") == "170052A004012"
    assert nir_key("170052A004012") != nir_key("170052B004012")


def test_combined_values_are_unambiguous():
    assert combine([["AB", "A"], ["C", "BC"]]) == ["2:AB1:C", "1:A2:BC"]
    assert combine([["AB", None], [None, "C"]]) == [None, None]
    assert combine([[], []]) == []


parts = st.text("A1:-", min_size=1, max_size=4).map(lambda text: text.replace(":", "12"))


@given(st.lists(parts, min_size=1, max_size=4), st.lists(parts, min_size=1, max_size=4))
def test_different_parts_give_different_combinations(one, other):
    joined = [combine([[part] for part in row])[0] for row in (one, other)]
    assert (joined[0] == joined[1]) is (one == other)
    assert normalise(joined, "combined") == joined


def test_columns_of_every_kind_are_taken():
    dates = pd.Series(pd.to_datetime(["1950-01-31", None]))
    assert normalise(dates, "date") == ["1950-01-31", None]
    assert normalise(dates.to_numpy(), "date") == ["1950-01-31", None]
    assert normalise(pd.Series(["a", pd.NA], dtype="string"), "identifier") == ["A", None]
    assert normalise((one for one in ("a", "b")), "name") == ["A", "B"]
    assert normalise([], "name") == []
    assert normalise([None, "9434765919"], "nhs-number") == [None, "9434765919"]


KNOWN = "Zqxjkv-73317"
REFUSED = {
    "an integer": (lambda: normalise(["a", 7331773317], "identifier"), DataError),
    "a numpy integer": (lambda: normalise(np.array([7331773317]), "identifier"), DataError),
    "a float": (lambda: normalise([7331773317.5], "name"), DataError),
    "a boolean": (lambda: normalise([True], "identifier"), DataError),
    "bytes": (lambda: normalise([KNOWN.encode()], "name"), DataError),
    "a list": (lambda: normalise([[KNOWN]], "name"), DataError),
    "an integer NHS number": (lambda: normalise([7331773317], "nhs-number"), DataError),
    "an integer NIR": (lambda: normalise([7331773317], "nir"), DataError),
    "a date as a number": (lambda: normalise([73317], "date"), DataError),
    "a date far away": (lambda: normalise([np.datetime64(73317_000, "Y")], "date"), DataError),
    "a short year": (lambda: normalise(["7/3/31"], "date", date_order="mdy"), DataError),
    "one text for a column": (lambda: normalise(KNOWN, "name"), DataError),
    "bytes for a column": (lambda: normalise(KNOWN.encode(), "name"), DataError),
    "a table": (lambda: normalise(pd.DataFrame({KNOWN: [KNOWN]}), "name"), DataError),
    "not combined": (lambda: normalise([KNOWN], "combined"), DataError),
    "an unknown kind": (lambda: normalise([KNOWN], "surname"), ConfigurationError),
    "an unknown order": (lambda: normalise([KNOWN], "date", date_order="ydm"), ConfigurationError),
    "unequal columns": (lambda: combine([[KNOWN], []]), DataError),
    "no columns": (lambda: combine([]), DataError),
    "a raw column": (lambda: combine([[KNOWN.upper()[:6], float("nan")]]), DataError),
    "a raw number": (lambda: combine([[73317]]), DataError),
    "raw parts": (lambda: combine([[KNOWN], ["A"]]), DataError),
}


@pytest.mark.parametrize(("attempt", "kind"), REFUSED.values(), ids=REFUSED)
def test_refusals_quote_no_value(attempt, kind):
    with pytest.raises(kind) as caught:
        attempt()
    error: BaseException | None = caught.value
    assert isinstance(error, MulticentreError)
    while error is not None:
        said = f"{error} {error!r} {error.args} {vars(error)} {''.join(traceback.format_exception_only(error))}"
        assert not any(part in said.lower() for part in ("zqxjkv", "73317", "7/3/31")), said
        error = error.__cause__ or error.__context__


def test_a_refusal_says_where():
    with pytest.raises(DataError) as caught:
        normalise(["a", None, 12], "identifier")
    assert caught.value.where == "identifier, value 3"
    assert "Read the column as text" in caught.value.hint
