"""How people are compared between sites: one key, labels that serve once, and sums that tell of no person."""

from multicentre.validation.keys.part import (
    Fingerprint,
    KeyedPart,
    Labelled,
    Nonce,
    Nonces,
    Persons,
    Study,
    agree_on_key,
    check_keys,
    check_present,
    check_rules,
    describe_persons,
    draw_label,
    label_of,
)

__all__ = [
    "Fingerprint",
    "KeyedPart",
    "Labelled",
    "Nonce",
    "Nonces",
    "Persons",
    "Study",
    "agree_on_key",
    "check_keys",
    "check_present",
    "check_rules",
    "describe_persons",
    "draw_label",
    "label_of",
]
