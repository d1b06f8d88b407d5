"""A program beside a rank: in its pod, with the variables and in the folder of its process.

A pod may hold several ranks, and what tells them apart is not the pod's but set by the launcher. On any
Kubernetes the rank's process is found inside of the pod; that takes `sh`, as starting ranks does.
"""

from __future__ import annotations

# Each variable of a process goes on one line: its own newlines are bytes of 1 meanwhile. In the mode `plain`
# other pods' processes are seen too: RANKS_OF of `gangline.train.rank_processes` tells whose they are.
_SCRIPT = r"""
rank=$1 ranks_of=${GANGLINE_RANKS_OF-} one=$(printf '\1') line='
'
shift
for pid in $(ls /proc | grep '^[0-9]' | sort -n); do
    all=$line$({ tr '\n\0' '\1\n' < /proc/$pid/environ; } 2>/dev/null)$line
    case $all in
    *"${line}OMPI_COMM_WORLD_RANK=$rank$line"* | *"${line}PMI_RANK=$rank$line"*) ;;
    *) continue ;;
    esac
    case $all in *"${line}GANGLINE_RANKS_OF=$ranks_of$line"*) ;; *) [ -z "$ranks_of" ] || continue ;; esac
    cd -P /proc/$pid/cwd || continue
    set -f
    IFS=$line
    for item in $all; do
        case $item in *"$one"*) item=$(printf %s "$item" | tr '\1' '\n') ;; esac
        case $item in ?*=*) set -- "$item" "$@" ;; esac
    done
    exec env "$@"
done
echo "no process of rank $rank runs in this pod: this runs without its variables" >&2
exec "$@"
"""


SHELL = ("/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi")
"""The best shell that a pod has."""


def beside_rank(rank: int, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line that runs a program beside a rank, whose pod it is executed in.

    Where no process of the rank runs, the program runs with the pod's variables, and standard error says so.
    """
    return ("/bin/sh", "-c", _SCRIPT, "sh", str(rank), *words)
