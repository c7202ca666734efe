"""Saved models of tests: changed, and given a digest that fits the change, as a forger would."""

import io
import json
import zipfile

import numpy as np

from multicentre.core.model_files import ARRAYS, DESCRIPTION, digest_of


def description_of(folder):
    """Return the content of a model's description."""
    return json.loads((folder / DESCRIPTION).read_text())


def sign(folder):
    """Give the files of a model the digest that fits them."""
    described = description_of(folder)
    described["sha256"] = digest_of(described, (folder / ARRAYS).read_bytes())
    (folder / DESCRIPTION).write_text(json.dumps(described))


def describe(folder, **changes):
    """Change entries of a model's description, and sign it."""
    (folder / DESCRIPTION).write_text(json.dumps(description_of(folder) | changes))
    sign(folder)


def store(folder, arrays, *, declare=True):
    """Replace a model's arrays, by default with declarations that fit, and sign it."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    (folder / ARRAYS).write_bytes(buffer.getvalue())
    if declare:
        values = {name: np.asarray(value) for name, value in arrays.items()}
        declared = {name: {"dtype": one.dtype.str, "shape": list(one.shape)} for name, one in values.items()}
        describe(folder, arrays=declared)
    sign(folder)


VALUES = (None, True, False, 0, -1, 1, 2**31, 2**70, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "\x1b[2K")
CONTAINERS = ([], {}, [1], ["x"], {"x": 1}, [[]], [None], {"": None})


def mutate(folder, rng):
    """Change a saved model at random; return whether its digest was made to fit."""
    kind = rng.choice(["bytes", "json", "json", "numbers", "members", "header"])
    {"bytes": _bytes, "json": _json, "numbers": _numbers, "members": _members, "header": _header}[kind](folder, rng)
    if kind == "bytes" or (kind in ("json", "header") and rng.random() < 0.2):
        return False
    sign(folder)
    return True


def _bytes(folder, rng):
    """Flip a bit, cut off an end, take bytes out, put some in, or overwrite some."""
    path = folder / rng.choice([ARRAYS, DESCRIPTION])
    content = bytearray(path.read_bytes())
    at, length = int(rng.integers(len(content))), int(rng.integers(1, 9))
    match rng.integers(5):
        case 0:
            content[at] ^= 1 << int(rng.integers(8))
        case 1:
            del content[at:]
        case 2:
            del content[at : at + length]
        case 3:
            content[at:at] = rng.bytes(length)
        case _:
            content[at : at + length] = rng.bytes(length)
    path.write_bytes(content)


def _json(folder, rng):
    """Replace, remove, rename or exchange a value somewhere in the description."""
    described = description_of(folder)
    nodes = list(_nodes(described))
    parent, key = nodes[rng.integers(len(nodes))]
    match rng.integers(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent["renamed"] = parent.pop(key)
        case 2:
            other, at = nodes[rng.integers(len(nodes))]
            parent[key] = json.loads(json.dumps(other[at]))
        case 3:
            parent[key] = CONTAINERS[rng.integers(len(CONTAINERS))]
        case _:
            parent[key] = VALUES[rng.integers(len(VALUES))]
    (folder / DESCRIPTION).write_text(json.dumps(described))


def _nodes(node):
    """Yield every container of a tree with every place in it."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from _nodes(node[key])


def _numbers(folder, rng):
    """Replace entries of an array by extreme ones, or change its dtype or shape; declared as it then is."""
    arrays = read_arrays(folder)
    name = str(rng.choice(list(arrays)))
    changed = np.array(arrays[name])
    match rng.integers(6):
        case 0:
            changed = changed.astype(str(rng.choice(["f4", "f8", "i4", "u1", "b1", "i8", "c16", "U3"])))
        case 1:
            changed = changed.ravel()[: rng.integers(changed.size + 1)]
        case 2:
            changed = np.stack([changed, changed])
        case 3 if changed.dtype.kind == "f":
            changed = np.full_like(changed, np.nan)
        case _ if changed.size:
            at, extremes = rng.integers(changed.size), [0, 1, -1, 2**31 - 1, -(2**31), 2**62, np.nan, np.inf, 1e300]
            with np.errstate(all="ignore"):
                changed.flat[at] = np.array(extremes[rng.integers(len(extremes))]).astype(changed.dtype)
    arrays[name] = changed
    store(folder, arrays, declare=bool(rng.random() < 0.8))


def _members(folder, rng):
    """Exchange two arrays, leave one out, repeat one, add one, or compress them."""
    arrays = read_arrays(folder)
    names = list(arrays)
    one, other = (str(name) for name in rng.choice(names, 2))
    match rng.integers(5):
        case 0:
            arrays[one], arrays[other] = arrays[other], arrays[one]
        case 1:
            del arrays[one]
        case 2:
            arrays["undeclared"] = arrays[one]
        case 3:
            arrays[one] = arrays[other]
        case _:
            np.savez_compressed(folder / ARRAYS, **arrays)
            return
    store(folder, arrays, declare=bool(rng.random() < 0.5))


def _header(folder, rng):
    """Change bytes of an array's header, in an archive whose checksums fit."""
    with zipfile.ZipFile(folder / ARRAYS) as archive:
        members = {member: bytearray(archive.read(member)) for member in archive.namelist()}
    content = members[str(rng.choice(list(members)))]
    for _ in range(rng.integers(1, 4)):
        content[rng.integers(min(len(content), 128))] = int(
            rng.choice(list(b"0123456789(),<>|fiubOSUV'{}: \n\x93\x00\xff"))
        )
    with zipfile.ZipFile(folder / ARRAYS, "w") as archive:
        for member, one in members.items():
            archive.writestr(member, bytes(one))


def read_arrays(folder):
    """Return the arrays of a saved model."""
    with np.load(folder / ARRAYS) as members:
        return dict(members.items())
