# A fresh sandbox for a test that is run from outside. To be sourced in the repository's root:
# `start_sandbox` sets $sandbox to its directory once sandbox.json is there, and ends it with the script;
# `no_errors_logged` fails when the service has logged an error.

start_sandbox() {
  cargo build --quiet ${BUILD:---bin dvp}
  sandbox=$(mktemp -d)
  "${CARGO_TARGET_DIR:-target}/debug/dvp" sandbox --dir "$sandbox/data" --http 127.0.0.1:0 --fix 127.0.0.1:0 "$@" \
    >/dev/null 2>"$sandbox/log" &
  sandbox_pid=$!
  trap stop_sandbox EXIT
  for _ in $(seq 600); do
    [ -e "$sandbox/data/sandbox.json" ] && return
    kill -0 "$sandbox_pid" 2>/dev/null || break
    sleep 0.2
  done
  echo "the sandbox does not start:" >&2
  cat "$sandbox/log" >&2
  exit 1
}

stop_sandbox() {
  kill -INT "$sandbox_pid" 2>/dev/null || true
  wait "$sandbox_pid" 2>/dev/null || true
  rm -rf "$sandbox"
}

no_errors_logged() {
  if grep -qE ' ERROR |panicked' "$sandbox/log"; then
    echo "the service logged errors:" >&2
    grep -E ' ERROR |panicked' "$sandbox/log" | head -20 >&2
    return 1
  fi
}
