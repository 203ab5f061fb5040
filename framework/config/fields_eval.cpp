// Keys of `eval`, `run`, `checkpoint` and `metrics`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe_metrics(EvalConfig& e, FieldVisitor& v) {
  constexpr auto metrics = words(Metric{});
  const Field f = choice(
      "metrics", std::vector<std::string_view>(metrics.begin(), metrics.end()),
      "loss (without label smoothing) and, unless the first head is of type regress, perplexity "
      "are always computed; accuracy: fraction of the labels that have the highest logit; bleu, "
      "chrf: scores of translations, for pairs");
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
  v.value(number("every", 0, "steps between evaluations; 0: never"), e.every);
  v.value(number("batches", 0, "global batches per evaluation; 0: all validation data"), e.batches);
  describe_metrics(e, v);
  v.value(number("beam", 1, "beam size for translation; 1: greedy", 1024), e.beam);
  v.value(real("length_penalty", 0,
               "exponent X of the length penalty: hypotheses are ranked by the sum of their "
               "log-probabilities / tokens^X"),
          e.length_penalty);
  v.section(
      section("stop",
              "early stopping: stop training when a metric stops improving; the best checkpoint is "
              "kept as `best`"),
      [&e](FieldVisitor& s) {
        if (!e.stop) e.stop.emplace();
        s.value(option("metric", "metric to watch"), e.stop->metric);
        s.value(required(
                    number("patience", 1, "evaluations without improvement before training stops")),
                e.stop->patience);
      },
      !e.stop);
}

void describe(RunConfig& r, FieldVisitor& v) {
  v.value(with_word(text("name",
                         "name of the run, which labels its metrics and reports; auto: the last "
                         "telling folder of `checkpoint.dir`, else of `metrics.jsonl` "
                         "(runs/gpt2/checkpoints: gpt2), else the configuration file's name"),
                    "auto"),
          r.name);
}

void describe(CheckpointConfig& c, FieldVisitor& v) {
  v.value(with_word(text("dir",
                         "directory of the checkpoints; none: do not write checkpoints; auto: "
                         "runs/NAME/checkpoints, where NAME is `run.name`, followed by -2, -3, ... "
                         "where another run has it"),
                    "auto"),
          c.dir);
  v.value(number("every", 0, "steps between checkpoints; 0: by time, on request and at the end"),
          c.every);
  v.value(number("every_minutes", 0,
                 "minutes between checkpoints where `every` is 0; 0: only on request and at the "
                 "end"),
          c.every_minutes);
  v.value(number("keep", 1, "number of latest checkpoints to keep; 1 keeps two"), c.keep);
  v.value(
      text("resume",
           "auto: resume from the latest checkpoint in `dir`; never; or the path of a checkpoint"),
      c.resume);
}

void describe(MetricsConfig& m, FieldVisitor& v) {
  v.value(with_word(text("jsonl", "file that receives one JSON object per line; none: no file"),
                    "none"),
          m.jsonl);
  v.value(with_word(text("tensorboard",
                         "directory that receives event files for TensorBoard; none: no files"),
                    "none"),
          m.tensorboard);
  v.value(with_word(text("listen",
                         "host:port that serves `/metrics` (Prometheus) and `/healthz`; none: off"),
                    "none"),
          m.listen);
  v.value(number("log_every", 1, "log every this many steps"), m.log_every);
}

}  // namespace tfm::config
