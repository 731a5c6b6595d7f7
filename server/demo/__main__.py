"""`python -m server.demo nexmark|kafka`."""

from __future__ import annotations

import argparse
import sys

from server.cli.errors import ShellError
from server.demo.cluster import ClusterError


def main() -> int:
    """Run a demo; 1 when it could not show what it promises."""
    parser = argparse.ArgumentParser(prog="python -m server.demo", description=__doc__)
    demos = parser.add_subparsers(dest="demo", required=True)
    nexmark = demos.add_parser("nexmark", help="a continuous windowed query over a built-in source")
    nexmark.add_argument("--seconds", type=float, default=12.0, help="how long to watch")
    nexmark.add_argument("--rate", type=int, default=20_000, help="events per second")
    kafka = demos.add_parser("kafka", help="Kafka to Kafka exactly once, with a TaskManager killed half way")
    kafka.add_argument("--bids", type=int, default=400_000, help="how many are sent")
    kafka.add_argument("--seconds", type=float, default=16.0, help="over how long")
    arguments = parser.parse_args()
    try:
        if arguments.demo == "nexmark":
            from server.demo.nexmark import run as run_nexmark

            run_nexmark(arguments.seconds, arguments.rate)
            return 0
        from server.demo.kafka import run as run_kafka

        return 0 if run_kafka(arguments.bids, arguments.seconds) else 1
    except (ClusterError, ShellError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
