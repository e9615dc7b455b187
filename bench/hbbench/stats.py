# SPDX-License-Identifier: Apache-2.0
"""Percentiles, shares and their 95 % intervals; docs/bench.md names the methods. An estimate is [value, low, high]; None
stands for a number that is not known."""
import math
import random

Z = 1.96
DRAWS = 1000
ROUNDS_NEEDED = 3  # fewer rounds make no bootstrap interval
SETTLE_S = 0.2     # at the start of each half, after low priority began or ended
SAME = 0.001       # attainments that differ by less count as equal
UNKNOWN = [None, None, None]


def quantile(values, share):
    """The value at that share of the sorted values, which must not be empty."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def quantile_us(ordered_ns, share):
    """Estimate of a quantile in microseconds from order statistics; values in nanoseconds, ascending."""
    n = len(ordered_ns)
    if not n:
        return UNKNOWN
    middle = n * share
    half = Z * math.sqrt(middle * (1 - share))

    def at(rank):
        return ordered_ns[rank - 1] / 1e3 if 1 <= rank <= n else None
    return [at(max(1, math.ceil(middle))), at(math.floor(middle - half)), at(math.ceil(middle + half) + 1)]


def bootstrap(statistic, rounds):
    """Estimate of statistic(list of round numbers) by drawing rounds with repetition."""
    value = statistic(range(rounds))
    if rounds < ROUNDS_NEEDED or value is None:
        return [value, None, None]
    draw = random.Random(1)
    found = sorted(one for one in (statistic([draw.randrange(rounds) for _ in range(rounds)]) for _ in range(DRAWS))
                   if one is not None)
    if len(found) < DRAWS / 2:
        return [value, None, None]
    return [value, found[int(0.025 * len(found))], found[int(0.975 * len(found))]]


def mean(values):
    """Mean of the known values; None when there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def attainment(rounds_ns, slo_ns):
    """Share of requests within the objective; `rounds_ns` has one list of latencies a round."""
    within = [sum(ns <= slo_ns for ns in one) for one in rounds_ns]

    def share(chosen):
        total = sum(len(rounds_ns[i]) for i in chosen)
        return sum(within[i] for i in chosen) / total if total else None
    return bootstrap(share, len(rounds_ns)) if slo_ns else UNKNOWN


def mean_us(rounds_ns):
    """Mean latency in microseconds."""
    sums = [sum(one) for one in rounds_ns]

    def of(chosen):
        total = sum(len(rounds_ns[i]) for i in chosen)
        return sum(sums[i] for i in chosen) / total / 1e3 if total else None
    return bootstrap(of, len(rounds_ns))


def relative_speed(shared, alone):
    """Mean over programs of speed / speed alone; each argument has one list of speeds (one a round) for each program."""
    def share(chosen):
        ratios = []
        for here, there in zip(shared, alone):
            speed, reference = mean(here[i] for i in chosen), mean(there[i] for i in chosen)
            if speed is not None and reference:
                ratios.append(speed / reference)
        return mean(ratios)
    return bootstrap(share, len(shared[0])) if shared else UNKNOWN


def in_halves(one, parity, key="latency_ns"):
    """Values of requests of a round with halves that were due well inside the halves without (0) or with (1) low priority."""
    half_ns = one["half_s"] * 1e9
    settle = min(SETTLE_S * 1e9, half_ns / 5)
    return [value for value, due in zip(one[key], one["due_ns"])
            if int(due // half_ns) % 2 == parity and due % half_ns >= settle]


def attainment_in_halves(rounds, parity):
    """Share within the p99 of the halves without low priority of the same window; with parity 0 it is the control: each of
    those halves judged by the others."""
    def judge(one):
        alone = in_halves(one, 0)
        if parity:
            slo = quantile(alone, 0.99) if alone else 0
            own = in_halves(one, 1)
            return sum(ns <= slo for ns in own), len(own)
        met = count = 0
        numbers = [int(due // (one["half_s"] * 1e9)) for due in in_halves(one, 0, "due_ns")]
        for number in set(numbers):
            own = [ns for ns, at in zip(alone, numbers) if at == number]
            others = [ns for ns, at in zip(alone, numbers) if at != number]
            slo = quantile(others, 0.99) if others else 0
            met, count = met + sum(ns <= slo for ns in own), count + len(own)
        return met, count
    judged = [judge(one) for one in rounds]

    def share(chosen):
        total = sum(judged[i][1] for i in chosen)
        return sum(judged[i][0] for i in chosen) / total if total else None
    return bootstrap(share, len(rounds))


def summarize_halves(rounds, window_s):
    """The same summary for windows with halves, and what only they show: the control, and latencies and waits for the GPU
    (from a request's last launch to its end) without and with low priority."""
    def quantiles(parity, key):
        values = sorted(ns for one in rounds for ns in in_halves(one, parity, key))
        return {"p50_us": quantile_us(values, 0.5), "p99_us": quantile_us(values, 0.99)}
    beside = [{"seen": len(values), "served_s": one["served_s"], "latency_ns": values}
              for one in rounds for values in [in_halves(one, 1)]]
    found = summarize_service(beside, 0, window_s)
    return dict(found, rate_per_s=ratio(sum(one["seen"] for one in rounds), sum(one["served_s"] for one in rounds)),
                attainment=attainment_in_halves(rounds, 1), control=attainment_in_halves(rounds, 0),
                alone=quantiles(0, "latency_ns"), wait_alone=quantiles(0, "wait_ns"), wait=quantiles(1, "wait_ns"))


def summarize_service(rounds, slo_ns, window_s):
    """Summary of one service under one way of sharing; `rounds` as in the result file, latencies as lists."""
    if rounds and "half_s" in rounds[0]:
        return summarize_halves(rounds, window_s)
    everything = sorted(ns for one in rounds for ns in one["latency_ns"])
    seen = sum(one["seen"] for one in rounds)
    served_s = sum(one.get("served_s") or window_s for one in rounds)
    return {"seen": seen, "rate_per_s": seen / served_s if served_s else None,
            "mean_us": mean_us([one["latency_ns"] for one in rounds]),
            "p50_us": quantile_us(everything, 0.5), "p99_us": quantile_us(everything, 0.99),
            "max_us": everything[-1] / 1e3 if everything else None,
            "attainment": attainment([one["latency_ns"] for one in rounds], slo_ns)}


def energy_rows(cell):
    """The parts of a cell that have NVML's energy of each window: of the reference its programs, else the cell."""
    return [row for row in [cell, *cell["high"], *cell["low"]] if "energy_mj" in row]


def energy_of_alone(cell, alone, rounds):
    """Energy of a window relative to the same work with a GPU for each program: each service's window alone, idle power included,
    and each low-priority program's window alone times its own relative speed, so without idle power after its share. None where
    NVML gave no energy."""
    rows = alone["high"] + alone["low"] if alone and cell is not alone else []
    speeds = [low["summary"]["of_alone"][0] for low in cell["low"]]
    if not rows or not rounds or None in speeds or any("energy_mj" not in row for row in [cell, *rows]):
        return None
    used_mj = [mean(row["energy_mj"][:rounds]) for row in rows]
    shares = [1] * len(alone["high"]) + speeds
    return ratio(mean(cell["energy_mj"][:rounds]), sum(mj * share for mj, share in zip(used_mj, shares)))


def summarize_case(case, window_s):
    """Fills the summaries, objectives and headline of a case from its raw values."""
    rounds = case["rounds"]
    alone = next((cell for cell in case["sharing"] if cell["class"] == "reference"), None)
    for i, service in enumerate(case["high"]):
        values = sorted(ns for one in alone["high"][i]["rounds"][:rounds] for ns in one["latency_ns"]) if alone else []
        service["slo_us"] = quantile_us(values, 0.99)[0]
    for cell in case["sharing"]:
        for i, high in enumerate(cell["high"]):
            slo_us = case["high"][i]["slo_us"]
            high["summary"] = summarize_service(high["rounds"][:rounds], slo_us and round(slo_us * 1e3), window_s)
        speeds = [low["rounds_per_s"][:rounds] for low in cell["low"]]
        references = [low["rounds_per_s"][:rounds] for low in alone["low"]] if alone else []
        for i, low in enumerate(cell["low"]):
            low["summary"] = {"per_s": mean(speeds[i]),
                              "of_alone": relative_speed(speeds[i:i + 1], references[i:i + 1]) if alone else UNKNOWN}
        cell["low_of_alone"] = relative_speed(speeds, references) if alone else UNKNOWN
        cell.pop("energy_of_alone", None)
        if "energy_mj" in cell:
            cell["energy_of_alone"] = energy_of_alone(cell, alone, rounds)
        worst = [high["summary"]["attainment"][0] for high in cell["high"]]
        cell["attainment"] = min((one for one in worst if one is not None), default=None)
    case["headline"] = headline_of(case)


def ratio(a, b):
    return a / b if a is not None and b else None


def better_of(cells):
    """The cell with the best attainment; equal ones are judged by the speed of low priority."""
    best = None
    for cell in (cell for cell in cells if cell["attainment"] is not None):
        if best is not None:
            ahead = cell["attainment"] - best["attainment"]
            if ahead < -SAME or abs(ahead) <= SAME and (cell["low_of_alone"][0] or 0) <= (best["low_of_alone"][0] or 0):
                continue
        best = cell
    return best


def headline_of(case):
    """Our best engine against the best spatial and the best temporal baseline; None without an engine or low priority."""
    best = {kind: better_of(cell for cell in case["sharing"] if cell["class"] == kind)
            for kind in ("reference", "temporal", "spatial", "engine")}
    ours = best["engine"]
    if not ours or not case["low"]:
        return None

    def against(kind, key):
        return ratio(key(ours), key(best[kind])) if best[kind] else None
    return {"engine": ours["name"],
            "spatial": best["spatial"] and best["spatial"]["name"],
            "attainment_of_spatial": against("spatial", lambda cell: cell["attainment"]),
            "temporal": best["temporal"] and best["temporal"]["name"],
            "attainment_of_temporal": against("temporal", lambda cell: cell["attainment"]),
            "attainment_below_exclusive": best["reference"]["attainment"] - ours["attainment"] if best["reference"] else None,
            "low_of_temporal": against("temporal", lambda cell: cell["low_of_alone"][0])}


def summarize_all(cases):
    """One row for each way of sharing: means over the cases. Only a way that was measured in all cases is compared."""
    cells = {}
    measured = [case for case in cases if case["sharing"]]
    for case in measured:
        for cell in case["sharing"]:
            if cell["attainment"] is not None:
                cells.setdefault(cell["name"], []).append(cell)
    rows = [{"name": name, "class": found[0]["class"], "cases": len(found), "attainment": mean(c["attainment"] for c in found),
             "least": min(c["attainment"] for c in found), "low_of_alone": mean(c["low_of_alone"][0] for c in found)}
            for name, found in cells.items()]
    complete = [dict(row, low_of_alone=[row["low_of_alone"]]) for row in rows if row["cases"] == len(measured)]
    best = {kind: better_of(row for row in complete if row["class"] == kind) for kind in ("reference", "temporal", "spatial")}
    for row in rows:
        ours = row["class"] == "engine" and row["cases"] == len(measured)

        def against(kind, key="attainment", row=row, ours=ours):
            other = best[kind] and best[kind][key]
            return ratio(row[key], other[0] if isinstance(other, list) else other) if ours and best[kind] else None
        row["attainment_below_exclusive"] = (best["reference"]["attainment"] - row["attainment"]
                                             if ours and best["reference"] else None)
        row["attainment_of_spatial"] = against("spatial")
        row["attainment_of_temporal"] = against("temporal")
        row["low_of_temporal"] = against("temporal", "low_of_alone")
    return {"cases": len(measured), "spatial": best["spatial"] and best["spatial"]["name"],
            "temporal": best["temporal"] and best["temporal"]["name"], "sharing": rows}
