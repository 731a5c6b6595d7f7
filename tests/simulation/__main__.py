"""Runs simulations: `python -m tests.simulation --help`, or `make simulate` and `make simulate-bugs`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.simulation.bugs import BUGS, planted
from tests.simulation.cluster import Result, simulate

CHUNK_SEEDS = 25
PROGRESS_SEEDS = 500
TRACE_LINES = 60
BUG_SEEDS_MAX = 2_000
SHOWN_FAILURES_MAX = 10
CATCHING_SEEDS = Path(__file__).with_name("catching_seeds.json")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (10,000)")
    parser.add_argument("--start", type=int, default=0, help="the first one (0)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one seed, with its whole trace")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with this bug planted")
    parser.add_argument(
        "--bugs", action="store_true", help=f"every planted bug must be caught in {BUG_SEEDS_MAX} seeds"
    )
    parser.add_argument("--record", action="store_true", help="with --bugs: write the catching seeds for the tests")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.replay is not None:
        with planted(options.bug) if options.bug else nullcontext():
            result = simulate(options.replay, recording=True)
        print("\n".join(result.trace))
        print(f"seed {result.seed}: {result.violation or 'no violation'}")
        return 1 if result.violation else 0
    if options.bugs:
        return catch_bugs(options.processes, record=options.record)
    return search(range(options.start, options.start + options.seeds), options.bug, options.processes)


def search(seeds: range, bug: str | None, processes: int) -> int:
    """Exit code 1 when there is a violation. The last line is the count."""
    started_s, done, violations = time.monotonic(), 0, 0
    chunks = [(seeds[i : i + CHUNK_SEEDS], bug) for i in range(0, len(seeds), CHUNK_SEEDS)]
    with multiprocessing.Pool(processes) as pool:
        for results in pool.imap_unordered(_run_chunk, chunks):
            for result in results:
                violations += 1
                if violations <= SHOWN_FAILURES_MAX:
                    _show(result, bug)
            before, done = done, min(done + CHUNK_SEEDS, len(seeds))
            if done // PROGRESS_SEEDS > before // PROGRESS_SEEDS:
                rate = done / (time.monotonic() - started_s)
                print(f"{done:,} of {len(seeds):,} seeds, {violations} violations, {rate:.0f} seeds/s", flush=True)
    print(f"{len(seeds)} seeds, {violations} violations")
    return 1 if violations else 0


def _run_chunk(chunk: tuple[range, str | None]) -> list[Result]:
    """Those with a violation, each run again for its trace."""
    seeds, bug = chunk
    with planted(bug) if bug else nullcontext():
        failed = [seed for seed in seeds if simulate(seed).violation]
        return [simulate(seed, recording=True) for seed in failed]


def _show(result: Result, bug: str | None) -> None:
    print(f"\nseed {result.seed}: {result.violation}")
    print(f"the last {TRACE_LINES} lines of its trace:")
    print("\n".join(result.trace[-TRACE_LINES:]))
    planted_bug = f" --bug {bug}" if bug else ""
    print(f"whole trace: python -m tests.simulation --replay {result.seed}{planted_bug}\n", flush=True)


def catch_bugs(processes: int, *, record: bool) -> int:
    """One line per bug: the first seed that catches it, and how."""
    caught: dict[str, int] = {}
    with multiprocessing.Pool(processes) as pool:
        for name, seed, violation in pool.imap(_first_catch, BUGS):
            how = f"NOT CAUGHT in {BUG_SEEDS_MAX} seeds"
            if seed is not None:
                caught[name] = seed
                how = f"seed {seed:>5}  {violation[:110]}"
            print(f"{name:32} {how}", flush=True)
    if record:
        CATCHING_SEEDS.write_text(json.dumps(caught, indent=2, sort_keys=True) + "\n")
    missed = len(BUGS) - len(caught)
    print(f"{len(BUGS)} bugs, {missed} not caught")
    return 1 if missed else 0


def _first_catch(name: str) -> tuple[str, int | None, str]:
    return name, *first_catch(name, range(BUG_SEEDS_MAX))


def first_catch(name: str, seeds: Iterable[int]) -> tuple[int | None, str]:
    """The first seed that shows the bug and nothing without it."""
    for seed in seeds:
        with planted(name):
            violation = simulate(seed).violation
        if violation and not simulate(seed).violation:
            return seed, violation
    return None, ""


if __name__ == "__main__":
    sys.exit(main())
