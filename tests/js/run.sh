#!/bin/sh
# The page's scripts: `run.sh check` (format, lint, types) or `run.sh test`. Without Node.js, or without a
# registry to install from, they are skipped with a reason.
cd "$(dirname "$0")" || exit 1

skip() {
  echo "tests/js: $1; $2 of the page's scripts is skipped" >&2
  exit 0
}

node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(Number(a * 100 + b < 2019))' \
  2>/dev/null || skip "Node.js 20.19 or newer is not installed" "$1"
command -v npm >/dev/null || skip "npm is not installed" "$1"
if [ ! -e node_modules/.ready ] || [ package-lock.json -nt node_modules/.ready ]; then
  npm ci --silent --no-audit --no-fund && touch node_modules/.ready || skip "npm ci failed" "$1"
fi
npm run --silent "$1"
