#!/bin/sh
# The tests of the page need a browser: Debian's, when there is none yet and this user may install it.
# Without one they are skipped, with a reason; where CI is set, they fail.
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "No chromium here: the tests of the page in a browser will be skipped."
  exit 0
fi
echo "Installing chromium for the tests of the page ..."
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends chromium >/dev/null ||
  echo "chromium could not be installed: the tests of the page in a browser will be skipped."
