#!/usr/bin/env bash
# Runs Slither over the contracts and compares what it finds with slither.txt, where SLITHER.md explains each result.
# `./slither.sh --update` rewrites slither.txt. Fetches Slither from PyPI into the workspace's target directory; needs
# python3 with venv, node, and `npm ci` in this directory.
set -euo pipefail
cd "$(dirname "$0")"
place="$(cd ../.. && pwd)/target/slither"
if [ ! -x "$place/bin/slither" ]; then
  python3 -m venv "$place"
  "$place/bin/pip" install --quiet slither-analyzer==0.11.6
fi
printf '#!/usr/bin/env bash\nexec node %q "$@"\n' "$PWD/solc-stdin.mjs" > "$place/bin/solc"
chmod +x "$place/bin/solc"
[ -d node_modules/solc ] || npm ci --ignore-scripts --no-audit --no-fund

# Our contracts alone: neither the test tokens and wallet nor what only the sandbox uses.
report="$place/report.json"
rm -f "$report"
PATH="$place/bin:$PATH" "$place/bin/slither" src --solc-standard-json --exclude-dependencies \
  --filter-paths "node_modules|OddToken|OddPayee|TestWallet|TestToken|TestCoin|AnchorStorm|ConstantProductPool|PoolCaller|PriceFeed" \
  --json "$report" > "$place/report.txt" 2>&1 || [ -s "$report" ] || { cat "$place/report.txt" >&2; exit 1; }
found="$("$place/bin/python" - "$report" <<'PYTHON'
import json, sys

report = json.load(open(sys.argv[1]))
if not report["success"]:
    sys.exit(report["error"])
# One line a result: the check, and where. Line numbers are left out, so that an edit elsewhere changes nothing.
lines = set()
for result in report["results"].get("detectors", []):
    where = result["elements"][0]
    parent = where.get("type_specific_fields", {}).get("parent", {}).get("name", "")
    lines.add(f'{result["impact"]:14} {result["check"]:24} {parent + "." if parent else ""}{where["name"]}')
print("\n".join(sorted(lines)))
PYTHON
)"
if [ "${1:-}" = --update ]; then
  printf '%s\n' "$found" > slither.txt
else
  diff -u slither.txt <(printf '%s\n' "$found")
fi
