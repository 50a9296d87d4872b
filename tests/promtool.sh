#!/usr/bin/env bash
# Gets promtool, which checks the alert rules, out of Debian's package of Prometheus, where it is
# missing and can be had. The package is taken apart and not installed, so no service is started and
# nobody has to be root. Never fails: where there is none, those tests are skipped and say so.
cd "$(dirname "$0")/.." || exit 0
command -v promtool >/dev/null && exit 0
[ -x .tools/promtool ] && exit 0
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
  echo "getting promtool, for the tests of the alert rules"
  place=$(mktemp -d) || exit 0
  trap 'rm -rf "$place"' EXIT
  chmod 755 "$place" # apt fetches as a user of its own
  fetch() { (cd "$place" && apt-get download prometheus) >/dev/null 2>&1; }
  fetch || { [ "$(id -u)" = 0 ] && apt-get update -qq >/dev/null 2>&1 && fetch; }
  if dpkg-deb --extract "$place"/prometheus_*.deb "$place/out" 2>/dev/null; then
    mkdir -p .tools && cp "$place/out/usr/bin/promtool" .tools/promtool
  fi
fi
[ -x .tools/promtool ] ||
  echo "no promtool, and it cannot be had: the tests of the alert rules will be skipped"
exit 0
