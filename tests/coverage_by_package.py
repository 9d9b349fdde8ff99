"""Coverage of lines by package, from the report that `coverage json` writes to standard output."""

import collections
import json
import sys


def main() -> None:
    lines: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for path, file in json.load(sys.stdin)["files"].items():
        package = "/".join(path.split("/")[:2]) if path.count("/") > 1 else path.split("/")[0]
        for name in (package, "all"):
            lines[name][0] += file["summary"]["covered_lines"]
            lines[name][1] += file["summary"]["num_statements"]
    for name, (covered, count) in sorted(lines.items(), key=lambda x: (x[0] == "all", x[0])):
        print(f"{name:28} {covered:6} of {count:6} {100.0 * covered / max(count, 1):5.1f} %")


if __name__ == "__main__":
    main()
