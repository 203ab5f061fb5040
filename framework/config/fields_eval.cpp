// Keys of `eval`, `checkpoint` and `metrics`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe_metrics(EvalConfig& e, FieldVisitor& v) {
  constexpr auto metrics = words(Metric{});
  const Field f = choice("metrics", std::vector<std::string_view>(metrics.begin(), metrics.end()),
                         "loss, without label smoothing, and perplexity are always measured; "
                         "accuracy: share of the labels that are the most "
                         "likely id; bleu, chrf: of translations of pairs");
  v.special(f, {.type = "a list of `loss`, `perplexity`, `accuracy`, `bleu`, `chrf`",
                .read =
                    [&e, f](FieldReader& reader, const YamlNode& node) {
                      e.metrics = EvalConfig().metrics;
                      for (const YamlNode& item : node.kind == YamlNode::Kind::sequence
                                                      ? node.items
                                                      : std::vector<YamlNode>{node}) {
                        std::string text;
                        if (!reader.read_value(f, item, text)) continue;
                        const auto metric = value_of<Metric>(text);
                        if (metric && !e.has(*metric)) e.metrics.push_back(*metric);
                      }
                    },
                .flow =
                    [&e] {
                      std::string s;
                      for (const Metric m : e.metrics) s += (s.empty() ? "" : ", ") + word(m);
                      return "[" + s + "]";
                    },
                .item = f,
                .most = kAnyNumber});
}

}  // namespace

void describe(EvalConfig& e, FieldVisitor& v) {
  v.value(number("every", 0, "steps between measurements; 0: never"), e.every);
  v.value(number("batches", 0, "global batches per measurement; 0: the whole validation data"),
          e.batches);
  describe_metrics(e, v);
  v.value(number("beam", 1, "hypotheses kept at each step of a translation; 1: greedy", 1024),
          e.beam);
  v.value(real("length_penalty", 0,
               "X: the best translation has the highest sum of log-probabilities / tokens^X"),
          e.length_penalty);
  v.section(
      section("stop",
              "ends training when a metric gets no better; its best checkpoint is called `best` "
              "and stays"),
      [&e](FieldVisitor& s) {
        if (!e.stop) e.stop.emplace();
        s.value(option("metric", "the one to watch"), e.stop->metric);
        s.value(required(number(
                    "patience", 1,
                    "measurements in a row without a new best value after which training ends")),
                e.stop->patience);
      },
      !e.stop);
}

void describe(CheckpointConfig& c, FieldVisitor& v) {
  v.value(with_word(text("dir", "folder of the checkpoints; none: no checkpoints"), "none"), c.dir);
  v.value(number("every", 0, "steps between checkpoints; 0: only at the end and on request"),
          c.every);
  v.value(number("keep", 1, "newest checkpoints that stay"), c.keep);
  v.value(text("resume", "auto: from the newest in `dir`; never; or the path of a checkpoint"),
          c.resume);
}

void describe(MetricsConfig& m, FieldVisitor& v) {
  v.value(with_word(text("jsonl", "file of one JSON object a line; none: no file"), "none"),
          m.jsonl);
  v.value(text("listen", "host:port of `/metrics` and `/healthz`; none: off"), m.listen);
  v.value(number("log_every", 1, "steps between logged steps"), m.log_every);
}

}  // namespace tfm::config
