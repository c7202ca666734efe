"""Elementwise half of an alternating direction step of self-expression, row by row in one pass.

A row minimises sum_i p_i(z_i) + rho / 2 (z_i - b_i)^2 over the simplex, with a zero diagonal. p_i is the cost of
the best split z = c + u: curvature / 2 c^2 - pull c + u^2 / (2 softness), with c, u >= 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.kernels.simplex import KEY, KINK, SLOPE, STEEP, find_largest, find_multiplier, sum_pieces
from multicentre.clustering.kernels.spectrum import insert
from multicentre.compilation import njit

Floats = NDArray[np.float64]

Reals = NDArray[Any]

Integers = NDArray[np.int64]

# Ratio of the residuals above which rho changes, so that it does not alternate between two values.
UNBALANCED = 4.0


@njit(cache=True, nogil=True)
def _gather(key: Reals, left_out: int, tau: float, place: Integers) -> int:
    """List the places whose key is above tau, without `left_out`; return their number."""
    count = 0
    for i in range(key.size):
        place[count] = i
        count += (key[i] > tau) & (i != left_out)
    return count


@njit(cache=True, nogil=True)
def _shape_piece(curvature: float, pull: float, softness: float, rho: float) -> tuple[float, float, float]:
    """Return slope, kink and steeper slope of the z of least cost as a function of rho b - tau."""
    give = 1.0 / curvature + softness
    return 1.0 / (curvature + rho), pull * (curvature + rho) / curvature, give / (1.0 + rho * give)


@njit(cache=True, nogil=True)
def _shape_pieces(
    key: Reals,
    place: Integers,
    count: int,
    row: int,
    rho: float,
    curvature: Reals,
    pull: Reals,
    softness: float,
    pieces: Floats,
) -> None:
    bend, lean = np.float64(curvature[0, 0]), np.float64(pull[0, 0])
    slope, kink, steep = _shape_piece(bend, lean, softness, rho)
    for c in range(count):
        i = place[c]
        if curvature.size > 1 or pull.size > 1:
            bend = np.float64(curvature[row, i]) if curvature.size > 1 else bend
            lean = np.float64(pull[row, i]) if pull.size > 1 else lean
            slope, kink, steep = _shape_piece(bend, lean, softness, rho)
        pieces[KEY, c], pieces[SLOPE, c], pieces[KINK, c], pieces[STEEP, c] = key[i], slope, kink, steep


@njit(cache=True, nogil=True)
def _reach_one(pieces: Floats) -> float:
    """Return the distance of tau below the key of the first piece at which that piece is one."""
    at_kink = pieces[SLOPE, 0] * pieces[KINK, 0]
    if at_kink >= 1.0:
        return 1.0 / pieces[SLOPE, 0]
    return pieces[KINK, 0] + (1.0 - at_kink) / pieces[STEEP, 0]


@njit(cache=True, nogil=True)
def _solve_row(
    key: Reals,
    row: int,
    rho: float,
    tau: float,
    curvature: Reals,
    pull: Reals,
    softness: float,
    place: Integers,
    pieces: Floats,
) -> tuple[float, int]:
    """Return the multiplier of a row and the number of places that may be above zero, from the previous multiplier."""
    count = _gather(key, row, tau, place)
    _shape_pieces(key, place, count, row, rho, curvature, pull, softness, pieces)
    total, rate = sum_pieces(pieces, count, tau)
    if total < 1.0:
        if count > 0:
            tau += (total - 1.0) / rate
        else:
            place[0] = find_largest(key, row)
            _shape_pieces(key, place, 1, row, rho, curvature, pull, softness, pieces)
            tau = pieces[KEY, 0] - _reach_one(pieces)
        count = _gather(key, row, tau, place)
        _shape_pieces(key, place, count, row, rho, curvature, pull, softness, pieces)
    return find_multiplier(pieces, count, tau), count


@njit(cache=True, nogil=True)
def _measure_row(
    previous: Reals, shadow: Reals, product: Reals, point: Reals, current: Reals, work: Reals
) -> tuple[float, float]:
    """Return the relative primal and dual residuals of a row; `work` is of shape (3, n)."""
    mismatch, change, dual = work[0], work[1], work[2]
    for i in range(current.size):
        mismatch[i] = shadow[i] + product[i] - current[i]
        change[i] = current[i] - previous[i]
        dual[i] = point[i] - current[i]
    size = np.dot(current, current)
    return np.sqrt(np.dot(mismatch, mismatch) / size), np.sqrt(np.dot(change, change) / max(size, np.dot(dual, dual)))


@njit(cache=True, nogil=True)
def _mix_rows(shadow: Reals, product: Reals, previous: Reals, mix: Reals, rho: Any, point: Reals, key: Reals) -> None:
    for i in range(point.size):
        point[i] = mix[0] * shadow[i] + mix[1] * product[i] + mix[2] * previous[i]
        key[i] = rho * point[i]


@njit(cache=True, nogil=True)
def _write_codes(pieces: Floats, place: Integers, count: int, tau: float, after: Reals) -> None:
    total, _ = sum_pieces(pieces, count, tau)
    after[:] = 0
    for c in range(count):
        x = pieces[KEY, c] - tau
        if x > pieces[KINK, c]:
            z = pieces[SLOPE, c] * pieces[KINK, c] + pieces[STEEP, c] * (x - pieces[KINK, c])
            after[place[c]] = z / total
        elif x > 0.0:
            after[place[c]] = pieces[SLOPE, c] * x / total


@njit(cache=True, nogil=True)
def _write_shadow(after: Reals, point: Reals, shrink: Any, shadow: Reals) -> None:
    for i in range(after.size):
        shadow[i] = after[i] - shrink * (point[i] - after[i])


@njit(cache=True, nogil=True)
def _judge_balance(primal: float, dual: float) -> float:
    if primal > UNBALANCED * dual:
        return 2.0
    return 0.5 if dual > UNBALANCED * primal else 1.0


@njit(cache=True, nogil=True)
def step_rows(
    codes: Reals,
    shadow: Reals,
    product: Reals,
    rows: Integers,
    rho: Floats,
    tau: Floats,
    curvature: Reals,
    pull: Reals,
    softness: float,
    mix: Reals,
    tolerance: float,
    adapt: bool,
) -> int:
    """Move every open row by one step, close those that have converged, and return the number of open rows.

    Parameters
    ----------
    codes : array of shape (n, n)
        v, one row per sample; changed in place.
    shadow : array of shape (b, n)
        v minus the scaled dual, of the open rows; changed in place, and rows that stay open move to the front.
    product : array of shape (b, n)
        Result of the least-squares half, to be added to `shadow`.
    rows, rho, tau : arrays of shape (b,)
        Number, penalty and last multiplier of each open row; changed as `shadow` is.
    curvature, pull : arrays of shape (n, n) or (1, 1)
    softness : float
    mix : array of shape (3,)
        Weights of shadow, product and v in b: relaxation - 1, relaxation, 2 - relaxation.
    tolerance : float
        Largest relative residual of a row that has converged.
    adapt : bool
        Whether rho is doubled or halved where the residuals differ fourfold.

    Examples
    --------
    >>> codes = np.array([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    >>> one, rows, zero = np.ones((1, 1)), np.arange(3), np.zeros((1, 1))
    >>> step_rows(codes, codes.copy(), 0 * codes, rows, np.ones(3), np.zeros(3), one, zero, 0.0,
    ...           np.array([0.6, 1.6, 0.4]), 1e-9, False)
    0
    """
    n = codes.shape[1]
    point, key, after = np.empty(n, codes.dtype), np.empty(n, codes.dtype), np.empty(n, codes.dtype)
    place, pieces, work = np.empty(n, np.int64), np.empty((4, n)), np.empty((3, n), codes.dtype)
    scalars = np.empty(2, codes.dtype)
    n_open = 0
    for s in range(rows.size):
        row = rows[s]
        previous, open_shadow, added = codes[row], shadow[s], product[s]
        scalars[0] = rho[s]
        _mix_rows(open_shadow, added, previous, mix, scalars[0], point, key)
        if pull.size > 1:
            key += pull[row]
        multiplier, count = _solve_row(key, row, rho[s], tau[s], curvature, pull, softness, place, pieces)
        _write_codes(pieces, place, count, multiplier, after)
        primal, dual = _measure_row(previous, open_shadow, added, point, after, work)
        previous[:] = after
        if primal < tolerance and dual < tolerance:
            continue
        factor = _judge_balance(primal, dual) if adapt else 1.0
        scalars[1] = 1.0 / factor
        _write_shadow(after, point, scalars[1], shadow[n_open])
        rows[n_open], rho[n_open], tau[n_open] = row, factor * rho[s], multiplier
        n_open += 1
    return n_open


@njit(cache=True, nogil=True)
def code_on_nearest(
    products: Floats, gram: Floats, landmark: Integers, nearest: int, mu: float, tolerance: float, most_moves: int
) -> tuple[Integers, Floats]:
    """Return the landmarks nearest to each sample, and their weights in it.

    Parameters
    ----------
    products : array of shape (b, m)
        Inner products of the samples with the landmarks.
    gram : array of shape (m, m)
        Inner products of the landmarks.
    landmark : array of shape (b,)
        Number of the landmark that the sample is, or -1: a landmark does not express itself.
    nearest : int
        k; of landmarks at equal distance the first one.
    mu : float
        Above 0.
    tolerance : float
        Difference of gradients at which a sample has converged.
    most_moves : int

    Returns
    -------
    columns : int64 array of shape (b, k)
        By ascending distance; -1 if there are fewer landmarks.
    values : float64 array of shape (b, k)
        At least 0, sum 1.

    Examples
    --------
    >>> points, landmark = np.array([[0.0], [1.0], [5.0]]), np.array([-1])
    >>> columns, values = code_on_nearest(0.25 * points.T, points @ points.T, landmark, 2, 0.5, 1e-9, 100)
    >>> columns.tolist(), values.round(6).tolist()
    ([[0, 1]], [[0.625, 0.375]])
    """
    n_rows, n_landmarks = products.shape
    columns = np.full((n_rows, nearest), -1, np.int64)
    values = np.zeros((n_rows, nearest))
    near, gradient = np.empty(nearest), np.empty(nearest)
    for i in range(n_rows):
        n_held = 0
        for j in range(n_landmarks):
            if j != landmark[i]:
                n_held = insert(columns[i], near, n_held, j, 2.0 * products[i, j] - gram[j, j])
        row_columns, shares = columns[i, :n_held], values[i, :n_held]
        _start(products[i], gram, row_columns, shares, gradient, mu)
        for _ in range(most_moves):
            if _move(gram, row_columns, shares, gradient, mu) <= tolerance:
                break
    return columns, values


@njit(cache=True, nogil=True)
def _start(product: Floats, gram: Floats, columns: Integers, shares: Floats, gradient: Floats, mu: float) -> None:
    """Set equal shares for all landmarks, and their gradient."""
    shares[:] = 1.0 / len(columns)
    for p in range(len(columns)):
        total = mu
        for q in range(len(columns)):
            total += gram[columns[p], columns[q]]
        gradient[p] = total / len(columns) - product[columns[p]]


@njit(cache=True, nogil=True)
def _move(gram: Floats, columns: Integers, shares: Floats, gradient: Floats, mu: float) -> float:
    """Move weight between the two landmarks that gain most, and return the difference of their gradients."""
    giver, taker = -1, 0
    for p in range(len(columns)):
        if shares[p] > 0.0 and (giver < 0 or gradient[p] > gradient[giver]):
            giver = p
        if gradient[p] < gradient[taker]:
            taker = p
    gap = gradient[giver] - gradient[taker]
    if gap <= 0.0:
        return 0.0
    g, t = columns[giver], columns[taker]
    weight = min(shares[giver], gap / (gram[g, g] + gram[t, t] - 2.0 * gram[g, t] + 2.0 * mu))
    shares[giver] -= weight
    shares[taker] += weight
    for p in range(len(columns)):
        gradient[p] += weight * (gram[columns[p], t] - gram[columns[p], g])
    gradient[giver] -= mu * weight
    gradient[taker] += mu * weight
    return gap
