"""Prints `N passed, N failed` over the JUnit reports of all test runs, and fails like they did."""

import sys
import xml.etree.ElementTree as ET


def main(reports: list[str]) -> int:
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for report in reports:
        for suite in ET.parse(report).getroot().iter("testsuite"):
            for name in counts:
                counts[name] += int(suite.get(name, 0))
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    print(f"{passed} passed, {failed} failed, {counts['skipped']} skipped")
    return 1 if failed or not counts["tests"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
