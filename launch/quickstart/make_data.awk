# Writes the data of the quick start, a date a line: as English has it in *.en, as ISO 8601 has it in *.iso.
#   the day before the first of May, nineteen eighty-seven -> 1987-04-30
# usage: awk -v dir=DIR [-v trains=N] [-v tests=N] -f make_data.awk       writes DIR/{train,test}.{en,iso}; DIR has to exist
#
# The test pairs come first and are held out: a date that is the answer to one of them is the answer to no training pair in any
# wording, so no answer can be known by heart. Half of the lines ask for the day before or after another. Of these a quarter start
# at the edge of a month and a quarter at the edge of a year, which even draws would make too rare to learn from.

# A whole number from 0 to n - 1, by Park and Miller's generator: what rand() gives depends on the awk.
function random(n) { state = state * 16807 % 2147483647; return int(state / 2147483647 * n) }

function days(y, m) { return m == 2 ? 28 + (y % 4 == 0 && y % 100 != 0 || y % 400 == 0) : 30 + (m + (m > 7)) % 2 }

# 21 as twenty-one, twenty-first and 21st
function cardinal(n) { return n < 20 ? small[n] : tens[int(n / 10)] (n % 10 ? "-" small[n % 10] : "") }
function ordinal(n) { return n < 20 ? nth[n] : n % 10 ? tens[int(n / 10)] "-" nth[n % 10] : n == 20 ? "twentieth" : "thirtieth" }
function numeral(n) { return n (n % 10 > 3 || n % 10 == 0 || int(n / 10) == 1 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : "rd") }

function spoken_year(y,  rest) {
  rest = y % 100
  if (y >= 2000 && y < 2010) return "two thousand" (rest ? " and " cardinal(rest) : "")
  return cardinal(int(y / 100)) " " (rest == 0 ? "hundred" : (rest < 10 ? "oh " : "") cardinal(rest))
}

function wording(y, m, d,  form) {
  form = random(6)
  if (form == 0) return d " " month[m] " " y                               # 3 March 1987
  if (form == 1) return month[m] " " d ", " y                              # March 3, 1987
  if (form == 2) return "the " numeral(d) " of " month[m] " " y            # the 3rd of March 1987
  if (form == 3) return month[m] " the " ordinal(d) ", " y                 # March the third, 1987
  if (form == 4) return month[m] " " numeral(d) ", " spoken_year(y)        # March 3rd, nineteen eighty-seven
  return "the " ordinal(d) " of " month[m] ", " spoken_year(y)             # the third of March, nineteen eighty-seven
}

BEGIN {
  split("January February March April May June July August September October November December", month)
  split("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " \
        "seventeen eighteen nineteen", small)
  split("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth " \
        "seventeenth eighteenth nineteenth", nth)
  split("ten twenty thirty forty fifty sixty seventy eighty ninety", tens)
  if (!tests) tests = 500
  if (!trains) trains = 60000
  state = 20170612
  for (pairs = 0; pairs < tests + trains;) {
    y = 1800 + random(300); m = 1 + random(12); d = 1 + random(days(y, m)); step = random(2) ? 0 : random(2) ? 1 : -1
    if (step && random(2)) { if (random(2)) m = step < 0 ? 1 : 12; d = step < 0 ? 1 : days(y, m) }
    english = (step < 0 ? "the day before " : step > 0 ? "the day after " : "") wording(y, m, d)
    d += step
    if (d > days(y, m)) { d = 1; if (++m > 12) { m = 1; ++y } }
    if (d < 1) { if (--m < 1) { m = 12; --y } d = days(y, m) }
    iso = sprintf("%04d-%02d-%02d", y, m, d)
    if (iso in held_out) continue  # keeps training off these dates, and the test's dates apart
    if (pairs < tests) held_out[iso]
    name = dir "/" (pairs++ < tests ? "test" : "train")
    print english > (name ".en")
    print iso > (name ".iso")
  }
}
