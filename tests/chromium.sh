#!/usr/bin/env bash
# Gets Chromium for the tests of the report page, from Debian's packages, where it is missing and can
# be had. Never fails: where there is none, those tests are skipped and say so.
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$name" >/dev/null && exit 0
done
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "installing chromium, for the tests of the report page"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1
fi
command -v chromium >/dev/null ||
  echo "no chromium, and it cannot be installed: the tests of the report page will be skipped"
exit 0
