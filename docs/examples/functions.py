"""Python functions on the fleet: results and exceptions come back as from a local executor.

Needs `mitosis login` first, and python3 on the hosts. Functions of your own need the package
cloudpickle here; what the hosts can import themselves goes without.
"""
# ruff: noqa: INP001, T201 - a script by itself, which speaks to whoever runs it

import math
import operator

import mitosis_client as mitosis


def main() -> None:
    with (
        mitosis.connect() as client,
        mitosis.MitosisExecutor(client, name="functions", workers=2) as executor,
    ):
        print("factorials:", list(executor.map(math.factorial, range(8))))
        quotient = executor.submit(operator.truediv, 1, 0)
        said = executor.submit(["sh", "-c", "echo from a host"])
        print("command:", said.result().stdout.strip())
        print("exception:", repr(quotient.exception()))


if __name__ == "__main__":
    main()
