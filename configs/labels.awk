# Writes the data of configs/moods.yaml, configs/entities.yaml and configs/search.yaml, made by grammars.
# usage: awk -v dir=DIR -f configs/labels.awk            writes DIR/{moods,entities,search}{,_test}.*; DIR has to exist
#
# moods: a sentence and its mood, which "not" and "hardly" turn round.
# entities: words with people (given name and family name), places and companies, whose names are drawn syllable by syllable, so that
# most names of the test are in no training text: what stands beside a name tells what it is.
# search: what somebody did somewhere, and the same in other words; no sentence of the test is in the training data.

function random(n) { state = state * 16807 % 2147483647; return int(state / 2147483647 * n) }
function one_of(list,  all, n) { n = split(list, all, " "); return all[random(n) + 1] }

function sentence(  turned, good) {
  turned = random(3) == 0
  good = random(2)
  mood = good != turned ? "good" : "bad"
  return (random(2) ? one_of("today sadly well now") " " : "") "the " one_of("film food hotel song story train weather view") \
         " " one_of("was is seemed looked") " " (turned ? one_of("not hardly") " " : random(2) ? one_of("very quite really") " " : "") \
         (good ? one_of("charming excellent fresh lovely warm") : one_of("awful boring cold dreadful stale"))
}

function name(  text, k) {
  text = one_of("B D K L M N R S T V")
  for (k = random(2) + 1; k > 0; --k) text = text one_of("a e i o u") one_of("d k l m n r s t")
  return text one_of("a e i o")
}
function word(text, label) { print text "\t" label > file }
function phrase(  kind) {
  kind = random(3)
  if (kind == 0) {
    word(one_of("Ms Mr Dr"), "O"); word(name(), "B-PER")
    if (random(2)) word(name(), "I-PER")
    word(one_of("works lives waits"), "O")
  } else if (kind == 1) {
    word(one_of("in near from"), "O"); word(name(), "B-LOC")
  } else {
    word("for", "O"); word(name(), "B-ORG"); word(one_of("Bank Group Ltd"), "I-ORG")
  }
}

function nth(list, k,  all) { split(list, all, " "); return all[k + 1] }
# Sets text and answer.
function fact(  who, did, what, where) {
  who = nth("Anna Boris Clara David Edith Felix Greta Hugo Irene Jonas", random(10))
  did = random(6); what = random(8); where = random(8)
  text = who " " nth("bought lost sold painted repaired found", did) " a " nth("car boat coat house bike lamp watch piano", what) \
         " " nth("in near", random(2)) " " nth("Paris Rome Vienna Cairo Tokyo Lima Oslo Delhi", where)
  answer = one_of("in around") " the capital of " nth("France Italy Austria Egypt Japan Peru Norway India", where) " a " \
           nth("vehicle vessel garment building bicycle light timepiece instrument", what) " " one_of("was got") " " \
           nth("purchased mislaid traded coloured mended discovered", did) " by " who
}

# The test comes first; its sentences are kept out of the training data.
function moods(path, n, test,  k, text) {
  print "text\tlabel" > path
  for (k = 0; k < n; ++k) {
    do text = sentence(); while (!test && text in kept)
    if (test) kept[text] = 1
    print text "\t" mood > path
  }
  close(path)
}
function entities(path, n,  k, more) {
  file = path
  for (k = 0; k < n; ++k) {
    for (more = random(3); more >= 0; --more) phrase()
    print "" > file
  }
  close(path)
}

function search(path, n, test,  k, key) {
  print "text\ttext_pair" > path
  for (k = 0; k < n; ++k) {
    do { fact(); key = text; sub(/ near /, " in ", key) } while (key in facts)
    if (test) facts[key] = 1
    print text "\t" answer > path
  }
  close(path)
}

BEGIN {
  state = 20261129
  moods(dir "/moods_test.tsv", 300, 1)
  moods(dir "/moods.tsv", 3000, 0)
  entities(dir "/entities_test.conll", 300)
  entities(dir "/entities.conll", 3000)
  search(dir "/search_test.tsv", 200, 1)
  search(dir "/search.tsv", 6000, 0)
}
