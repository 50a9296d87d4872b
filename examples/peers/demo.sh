#!/usr/bin/env bash
# Five peers on this machine, five processes: they train on the bundled digits, one of them plants a
# backdoor, the others remove it and recover. Exits with 0 only if all kept peers end with the same
# model and the backdoor is gone.
#
#   examples/peers/demo.sh [FOLDER]    FOLDER must not exist; a temporary one if not given
#
# PORT (7411 if not set) and the four after it must be free; PYTHON is the interpreter to use.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$(command -v "$here/../../.venv/bin/python" || command -v python3)}
port=${PORT:-7411}
names=(ash birch cedar elm fir)   # fir attacks
place=${1:-}
if [ -n "$place" ]; then
    mkdir -p "$(dirname "$place")" && mkdir "$place"
else
    place=$(mktemp -d)
fi
place=$(cd "$place" && pwd)
export OMP_NUM_THREADS=1

pdlrecover() { "$python" -m pdlrecover "$@"; }

running=()
cleanup() {
    code=$?
    for pid in ${running[@]+"${running[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in ${running[@]+"${running[@]}"}; do wait "$pid" 2>/dev/null || true; done
    if [ "$code" -ne 0 ]; then
        echo "The demonstration failed (exit code $code); see the logs in $place/*.log" >&2
        tail -n 5 "$place"/*.log >&2 2>/dev/null || true
    fi
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

alive() {   # stop waiting as soon as a peer has died
    for pid in "${running[@]}"; do
        kill -0 "$pid" 2>/dev/null || { echo "A peer has stopped." >&2; exit 1; }
    done
}

echo "1. Five organisations make their keys; each sends the others one line, its invitation."
mkdir -m 700 "$place/keys"
waiting=()
for i in "${!names[@]}"; do
    name=${names[$i]}
    drill=()
    [ "$name" = fir ] && drill=(--drill backdoor)
    pdlrecover peer init "$place/$name" --name "$name" --address "127.0.0.1:$((port + i))" \
        --key-file "$place/keys/$name.key" ${drill[@]+"${drill[@]}"} >/dev/null 2>&1 &
    waiting+=($!)
done
for pid in "${waiting[@]}"; do wait "$pid"; done

echo "2. They agree on a federation file; everybody signs its own copy, and the lines are exchanged."
pdlrecover peer federate "$place"/*/invitation.txt --plan "$here/plan.toml" \
    --out "$place/federation.toml" >/dev/null
waiting=()
for name in "${names[@]}"; do
    cp "$place/federation.toml" "$place/$name/"
    pdlrecover peer sign "$place/$name/federation.toml" "$place/$name" \
        >"$place/$name.signature" 2>/dev/null &
    waiting+=($!)
done
for pid in "${waiting[@]}"; do wait "$pid"; done
for name in "${names[@]}"; do
    cat "$place"/*.signature >"$place/$name/federation.signatures"
done

echo "3. They train 60 rounds on the digits; expect less than half a minute. fir plants a backdoor:"
echo "   two bright stripes across an image shall mean 0."
for name in "${names[@]}"; do
    "$python" -m pdlrecover peer run "$place/$name/federation.toml" "$place/$name" \
        >"$place/$name.log" 2>&1 &   # the process itself, so that it can be stopped by its number
    running+=($!)
done
for name in "${names[@]}"; do
    until [ -e "$place/$name/trained.json" ]; do alive; sleep 0.2; done
done
pdlrecover peer status "$place/ash"

echo "4. ash proposes to remove fir; birch and cedar approve: three of five are enough."
removal=$(pdlrecover peer propose-removal "$place/ash" --peers fir --reason malicious 2>/dev/null)
for name in birch cedar; do
    until pdlrecover peer approve "$place/$name" "$removal" 2>"$place/approve.log"; do
        alive; sleep 0.2   # the proposal may still be on its way
    done
done

echo "5. The kept peers recover together; 25 rounds from a fresh start; expect a few seconds."
pdlrecover peer recover "$place/ash" | tail -n 1
kept=(ash birch cedar elm)
for name in "${kept[@]}"; do
    until compgen -G "$place/$name/recovered-*.json" >/dev/null; do alive; sleep 0.2; done
done

echo "6. Expect: one digest everywhere; the backdoor works on nearly all images before, on few after."
"$python" "$here/judge.py" "${kept[@]/#/$place/}"
echo "Everything is in $place"
