# Read by the scripts beside it: how they report.

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# `expect WHAT TEXT COMMAND...`: the command succeeds and prints the text.
expect() {
    what=$1 text=$2
    shift 2
    printed=$("$@" 2>&1) || fail "$what: $* says: $printed"
    case $printed in
    *"$text"*) echo "ok: $what" ;;
    *) fail "$what: expected \`$text\`, got: $printed" ;;
    esac
}
