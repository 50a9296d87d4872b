#!/usr/bin/env bash
# Makes what compose.yaml mounts: five peers' keys and settings, and the federation file, signed by all.
# Everybody's keys end up in one place, so this is for practising, and for nothing else.
#
#   examples/operating/prepare.sh [FOLDER]    FOLDER must not exist; federation/ beside this file if not given
#
# PYTHON is the interpreter to use.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$(command -v "$here/../../.venv/bin/python" || command -v python3)}
place=${1:-$here/federation}
names=(ash birch cedar elm fir)

pdlrecover() { "$python" -m pdlrecover "$@"; }

umask 077
mkdir "$place" "$place/agreed" "$place/keys"
place=$(cd "$place" && pwd)
for name in "${names[@]}"; do   # each listens on its own container's port 7400
    pdlrecover peer init "$place/$name" --name "$name" --address "$name:7400" --listen 0.0.0.0:7400 \
        >/dev/null 2>&1
    "$python" -c 'import secrets; print(secrets.token_hex(32))' >"$place/keys/$name.key"
done
pdlrecover peer federate "$place"/*/invitation.txt --plan "$here/../peers/plan.toml" \
    --out "$place/agreed/federation.toml"
for name in "${names[@]}"; do
    pdlrecover peer sign "$place/agreed/federation.toml" "$place/$name" >/dev/null 2>&1
done
echo "made $place; next: PEER_USER=$(id -u):$(id -g) docker compose --file $here/compose.yaml up --build --detach"
