#!/bin/sh
# Compares a model's answers with the truth, line by line: prints ten of them at even distances, some mistakes and the rate of exact
# matches. Exit code 1 below 95 %. usage: show.sh SOURCE ANSWERS TRUTH
set -eu
[ $# -eq 3 ] || { echo "usage: show.sh SOURCE ANSWERS TRUTH" >&2; exit 2; }
paste "$1" "$2" "$3" | awk -F '\t' -v least=95 -v examples=10 -v mistakes=5 '
  function show(k) { printf row, source[k], answer[k], truth[k], answer[k] == truth[k] ? "yes" : "NO" }
  { source[NR] = $1; answer[NR] = $2; truth[NR] = $3; right += $2 == $3; if (length($1) > width) width = length($1) }
  END {
    if (NR == 0) { print "nothing to compare"; exit 1 }
    row = "%-" width "s | %-14s | %-10s | %s\n"
    printf row, "source (held out)", "model\047s answer", "truth", "ok"
    for (k = 1; k <= NR; ++k) if (int(k * examples / NR) > int((k - 1) * examples / NR)) show(k)
    if (right < NR) print "\nmistakes" (NR - right > mistakes ? ", the first " mistakes : "") ":"
    for (k = 1; k <= NR && mistakes > 0; ++k) if (answer[k] != truth[k]) { show(k); --mistakes }
    printf "\nexact match %.1f %% (%d of %d)\n", 100 * right / NR, right, NR
    exit 100 * right < least * NR
  }'
