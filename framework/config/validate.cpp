// Rules between keys of a run: defaults that depend on other keys, and invalid combinations.
#include <cmath>
#include <numeric>

#include "config/fields.h"
#include "config/rules.h"
#include "config/run_name.h"
#include "core/address.h"

namespace tfm::config {
namespace {

// Whether tokens of labelled text are masked.
bool masks_labelled_text(const ModelConfig& m) {
  return m.family == Family::encoder && m.head_of_type("lm");
}

// Whether metrics, which are those of the first head, are of numbers.
bool predicts_numbers(const ModelConfig& m) {
  return !m.heads.empty() && m.heads[0].type == "regress";
}

// What is hidden of a text, and what is done to it.
void check_noise(const SourceConfig& s, const std::string& section, const Report& report) {
  const SourceType& type = s.kind();
  const SourceConfig usual;
  const auto only = [&](bool given, bool fits, const std::string& key, const std::string& where) {
    only_with(report)(given, fits, section + key, where, "");
  };
  only(s.mask_probability > 0, type.mask_probability > 0, ".mask_probability",
       types_where([](const auto& t) { return t.mask_probability > 0; }));
  only(s.mean_span_length > 0, type.mean_span_length > 0, ".mean_span_length",
       types_where([](const auto& t) { return t.mean_span_length > 0; }));
  only(s.whole_words, type.whole_words, ".whole_words",
       types_where([](const auto& t) { return t.whole_words; }));
  const std::string denoises = types_where([](const auto& t) { return t.denoises; });
  only(s.permute_sentences != usual.permute_sentences, type.denoises, ".permute_sentences",
       denoises);
  only(s.rotate > 0, type.denoises, ".rotate", denoises);
  only(s.delete_tokens > 0, type.denoises, ".delete", denoises);
  only(s.mask_tokens > 0, type.denoises, ".mask_tokens", denoises);
  if (s.delete_tokens + s.mask_tokens > 1)
    report({section + ".delete", section + ".mask_tokens"},
           "delete " + number_text(s.delete_tokens) + " + mask_tokens " +
               number_text(s.mask_tokens) + " exceed all tokens; expected a sum of at most 1",
           "");
  only(!(s.fim == usual.fim), type.fills_middle, ".fim",
       types_where([](const auto& t) { return t.fills_middle; }));
  only(!(s.fim == usual.fim) && type.fills_middle, s.fim.rate > 0, ".fim", "fim.rate > 0");
}

// A data source and the model's family.
void check_source(const Config& c, const SourceConfig& s, const std::string& section,
                  const Report& report) {
  const ModelConfig& m = c.model;
  const SourceType& type = s.kind();
  const auto only = [&](bool given, bool fits, const std::string& key, const std::string& where) {
    only_with(report)(given, fits, key, where, "");
  };
  if (!s.type.empty() && !type.trains(m.family)) {
    std::string expected;
    for (const SourceType& t : source_types())
      if (t.trains(m.family)) expected += (expected.empty() ? "" : " or ") + t.name;
    report({section + ".type", "model.family"},
           section + ".type " + s.type + " cannot train a model of family " + word(m.family) +
               "; expected " + expected,
           "");
  }
  only(!s.source.empty() || !s.target.empty(), type.pairs,
       section + (s.source.empty() ? ".target" : ".source"),
       types_where([](const auto& t) { return t.pairs; }));
  only(s.mask_probability > 0 && type.labelled, masks_labelled_text(m),
       section + ".mask_probability", "an encoder that has a head of type lm");
  check_noise(s, section, report);
  const std::string labelled = types_where([](const auto& t) { return t.labelled; });
  const SourceConfig usual;
  only(s.text != usual.text, type.labelled, section + ".text", labelled);
  only(!s.text_pair.empty(), type.labelled, section + ".text_pair", labelled);
  only(s.label != usual.label, type.labelled, section + ".label", labelled);
  only(s.label != usual.label && type.labelled, m.labelled_heads().size() == 1, section + ".label",
       "one head for labels; several read the columns of their names");
  const std::string chats = types_where([](const auto& t) { return t.chats; });
  only(s.messages != usual.messages, type.chats, section + ".messages", chats);
  only(s.chat_template != usual.chat_template, type.chats, section + ".template", chats);
  only(!s.negative.empty(), type.labelled && m.embeds(), section + ".negative",
       labelled + " and a head of type embed");
  only(type.labelled, !m.labelled_heads().empty() || m.embeds(), section + ".type",
       "a head of type classify, tag, regress or embed, such as model.heads [{type: classify, "
       "classes: 2}]");
  if (type.labelled && m.embeds() && s.text_pair.empty())
    report({section + ".text_pair", section + ".type"},
           "a head of type embed learns from pairs of texts; expected text_pair, the column of the "
           "document that answers `text`",
           "");
  only(!s.text_pair.empty() && type.labelled, !m.head_of_type("tag"), section + ".text_pair",
       "a model without a head of type tag");
  only(s.documents == Documents::separate, type.documents, section + ".documents",
       types_where([](const auto& t) { return t.documents; }));
  const auto packs = [](const auto& t) { return t.documents && t.mask_probability == 0; };
  only(s.documents == Documents::packed, packs(type) && !s.weighted, section + ".documents",
       types_where(packs) + " and without weights of paths");
  only(s.document_end >= 0, s.documents != Documents::joined || s.fim.rate > 0,
       section + ".document_end", "documents separate or packed, or fim.rate > 0");
  if (s.document_end >= m.vocab_size)
    report({section + ".document_end", "model.vocab_size"},
           "document_end " + std::to_string(s.document_end) + " is outside model.vocab_size " +
               std::to_string(m.vocab_size) + "; expected an id of the vocabulary",
           "");
  only(s.next_sentence, type.next_sentence, section + ".next_sentence",
       types_where([](const auto& t) { return t.next_sentence; }));
  only(s.next_sentence && type.next_sentence, m.next_sentence(), section + ".next_sentence",
       "model.next_sentence true");
  only(s.next_sentence, s.documents == Documents::joined, section + ".next_sentence",
       "documents joined");
  only(s.next_sentence, m.type_vocab_size != 1, section + ".next_sentence",
       "model.type_vocab_size 0 (none) or 2");
  only(s.next_sentence, c.train.seq_len >= 5, section + ".next_sentence", "train.seq_len >= 5");
  only(std::ranges::any_of(s.paths, [](const SourcePath& p) { return p.weight != 1; }),
       type.any_file_weights, section + ".path.weight",
       types_where([](const auto& t) { return t.any_file_weights; }));
  const std::string pairs = types_where([](const auto& t) { return t.pairs; });
  only(std::ranges::any_of(s.paths,
                           [](const SourcePath& p) { return p.path.empty() || !p.prefix.empty(); }),
       type.pairs, section + ".path.prefix", pairs);
  only(s.temperature != 1 || s.max_examples > 0, type.pairs && s.paths.size() > 1 && !s.weighted,
       section + (s.temperature != 1 ? ".temperature" : ".max_examples"),
       pairs + ", several paths and no weights");
  if (type.pairs && !s.paths.empty() && (!s.source.empty() || !s.target.empty()))
    report({section + ".path", section + ".source"},
           "'path' and 'source' or 'target' are both set; expected either 'path' or 'source' and "
           "'target'",
           "");
}

void check_sources(const Config& c, const Report& report) {
  const ModelConfig& m = c.model;
  if (const auto heads = m.labelled_heads(); !heads.empty() && !c.data.train.kind().labelled)
    report({"model.heads", "data.train.type"},
           "the head " + quoted(heads.front()->name) +
               " needs the labels of each text, which data.train.type " + c.data.train.type +
               " does not have; expected " + types_where([](const auto& t) { return t.labelled; }),
           "");
  check_source(c, c.data.train, "data.train", report);
  if (c.data.validation) check_source(c, *c.data.validation, "data.validation", report);
  const auto by_itself = [](const SourceConfig& s) { return s.kind().labelled || s.kind().chats; };
  const bool one_type = m.translates() || by_itself(c.data.train) ||
                        (c.data.validation && by_itself(*c.data.validation));
  if (c.data.validation && one_type && c.data.validation->type != c.data.train.type)
    report({"data.validation.type", "data.train.type"},
           "data.validation.type " + c.data.validation->type + " differs from data.train.type " +
               c.data.train.type + "; expected the same objective",
           "");
  if (c.data.validation && c.data.validation->negative.empty() != c.data.train.negative.empty())
    report({"data.validation.negative", "data.train.negative"},
           "only one of data.train and data.validation has a column of negatives; expected both",
           "");
  if (c.data.validation && c.data.train.kind().chats && c.data.validation->kind().chats &&
      c.data.validation->chat_template != c.data.train.chat_template)
    report({"data.validation.template", "data.train.template"},
           "data.validation.template " + c.data.validation->chat_template +
               " differs from data.train.template " + c.data.train.chat_template +
               "; expected the same",
           "");
  only_with(report)(
      c.train.global_batch_tokens > 0, c.data.train.kind().pairs, "train.global_batch_tokens",
      "data.train." + types_where([](const auto& t) { return t.pairs; }), "global_batch_size");
  only_with(report)(c.train.micro_batch_tokens > 0, c.train.counts_tokens(),
                    "train.micro_batch_tokens",
                    "train.global_batch_tokens and without micro_batch_size", "micro_batch_size");
}

void check_schedule(const Config& c, const Report& report) {
  const ScheduleConfig& s = c.schedule;
  const std::string steps = std::to_string(c.train.steps);
  if (s.min_lr > c.optimizer.lr)
    report({"schedule.min_lr", "optimizer.lr"},
           "min_lr " + number_text(s.min_lr) + " is greater than optimizer.lr " +
               number_text(c.optimizer.lr) + "; expected min_lr <= lr",
           "");
  if (s.type == ScheduleType::noam && s.warmup_steps > 0) {
    const double peak =
        c.optimizer.lr / std::sqrt(static_cast<double>(c.model.d_model * s.warmup_steps));
    if (s.min_lr > peak)
      report(
          {"schedule.min_lr", "schedule.type"},
          "min_lr " + number_text(s.min_lr) +
              " is greater than the peak of schedule noam, lr / sqrt(d_model * warmup_steps) = " +
              number_text(peak) + "; expected min_lr of at most that",
          "");
  }
  if (s.type == ScheduleType::wsd && s.decay_steps == 0)
    report({"schedule.decay_steps", "schedule.type"},
           "decay_steps is missing: schedule wsd needs the length of its final decay; expected " +
               (s.warmup_steps < c.train.steps
                    ? "1 to train.steps - warmup_steps = " +
                          std::to_string(c.train.steps - s.warmup_steps)
                    : "a number from 1, and fewer warmup_steps than train.steps, " + steps),
           "");
  if (s.type == ScheduleType::wsd && s.decay_steps > 0 &&
      s.warmup_steps + s.decay_steps > c.train.steps)
    report({"schedule.decay_steps", "schedule.warmup_steps", "train.steps"},
           "warmup_steps " + std::to_string(s.warmup_steps) + " + decay_steps " +
               std::to_string(s.decay_steps) + " = " +
               std::to_string(s.warmup_steps + s.decay_steps) + " exceeds train.steps " + steps +
               "; expected a sum of at most " + steps,
           "");
  only_with(report)(s.decay_steps > 0,
                    s.type == ScheduleType::wsd || s.type == ScheduleType::cosine ||
                        s.type == ScheduleType::linear,
                    "schedule.decay_steps", "schedule.type wsd, cosine and linear", "");
  const bool decays = s.type == ScheduleType::cosine || s.type == ScheduleType::linear;
  if (decays && s.decay_steps > 0 && s.decay_steps <= s.warmup_steps)
    report({"schedule.decay_steps", "schedule.warmup_steps"},
           "decay_steps " + std::to_string(s.decay_steps) + " is not greater than warmup_steps " +
               std::to_string(s.warmup_steps) + "; expected a larger value, or 0 for train.steps",
           "");
  if ((s.type == ScheduleType::noam || s.type == ScheduleType::inverse_sqrt) && s.warmup_steps == 0)
    report({"schedule.warmup_steps", "schedule.type"},
           "schedule " + word(s.type) +
               " scales with warmup_steps, which is 0; expected warmup_steps >= 1",
           "");
}

void check_layers_per_stage(const Config& c, const Report& report) {
  const ParallelConfig& p = c.parallel;
  const std::vector<std::int64_t>& layers = p.layers_per_stage;
  if (layers.empty()) return;
  const std::int64_t stages = p.pipeline * p.stages_of_rank(),
                     sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (p.pipeline == 1)
    return report({"parallel.layers_per_stage", "parallel.pipeline"},
                  "layers_per_stage shares out the layers of a pipeline, but parallel.pipeline is "
                  "1; expected parallel.pipeline 2 or more, or layers_per_stage auto",
                  "");
  if (std::ssize(layers) != stages)
    report({"parallel.layers_per_stage", "parallel.pipeline"},
           "layers_per_stage has " + text(std::ssize(layers)) + " numbers, but there are " +
               text(stages) + " stages (parallel.pipeline " + text(p.pipeline) +
               (p.stages_of_rank() > 1 ? " * virtual_stages " + text(p.stages_of_rank()) : "") +
               "); expected " + text(stages) + " numbers, or auto",
           "");
  if (sum != c.model.total_layers())
    report({"parallel.layers_per_stage",
            c.model.translates() ? "model.n_decoder_layers" : "model.n_layers"},
           "layers_per_stage has " + text(sum) + " layers in all, but the model has " +
               text(c.model.total_layers()) + "; expected numbers that add up to them, or auto",
           "");
}

void check_parallel(const Config& c, const Report& report) {
  const ParallelConfig& p = c.parallel;
  const bool interleaved = p.schedule == PipelineSchedule::interleaved;
  if (interleaved && p.virtual_stages == 1)
    report({"parallel.virtual_stages", "parallel.schedule"},
           "schedule interleaved gives each rank several stages, but virtual_stages is 1; expected "
           "2 or more, or schedule 1f1b",
           "");
  if (!interleaved && p.virtual_stages > 1)
    report({"parallel.virtual_stages", "parallel.schedule"},
           "schedule 1f1b gives each rank one stage, but virtual_stages is " +
               std::to_string(p.virtual_stages) +
               "; expected schedule interleaved, or virtual_stages auto",
           "");
  check_layers_per_stage(c, report);
}

void check_listen(const Config& c, const Report& report) {
  const std::string& listen = c.metrics.listen;
  if (!listen.empty() && !address_of(listen))
    report({"metrics.listen"},
           quoted(listen) +
               " is not a valid address; expected host:port, such as \"127.0.0.1:9750\", or none",
           "");
}

void check_device(const Config& c, const Report& report) {
  if (c.tf32 && (c.device != DeviceKind::cuda || c.precision != Precision::fp32))
    report({"tf32", "device", "precision"},
           "tf32 is true, but TF32 exists only for fp32 on GPUs; expected device cuda and "
           "precision fp32, or tf32 false",
           "");
  if (c.cuda_graphs == CudaGraphs::on && c.device != DeviceKind::cuda)
    report({"cuda_graphs", "device"},
           "cuda_graphs is on, but CUDA graphs exist only on GPUs; expected device cuda, or "
           "cuda_graphs auto",
           "");
  if (c.parallel.backend == Backend::nccl && c.device != DeviceKind::cuda)
    report({"parallel.backend", "device"},
           "parallel.backend is nccl, but NCCL works only between GPUs; expected device cuda, or "
           "parallel.backend auto or mpi",
           "");
}

void check_optimizer(const Config& c, const Report& report) {
  const OptimizerConfig& o = c.optimizer;
  only_with(report)(o.momentum > 0, o.type == OptimizerType::sgd, "optimizer.momentum",
                    "optimizer.type sgd",
                    o.type == OptimizerType::muon ? "optimizer.muon.momentum" : "");
  if (o.type == OptimizerType::muon && o.lr == 0)
    report({"optimizer.lr", "optimizer.type"},
           "optimizer.lr is 0, but muon.lr follows its schedule; expected a rate greater than 0",
           "");
}

void check_recompute(const Config& c, const Report& report) {
  if (c.recompute_layers == 0 || c.recompute == Recompute::selective ||
      c.recompute == Recompute::full)
    return;
  report({"recompute_layers", "recompute"},
         "recompute_layers " + std::to_string(c.recompute_layers) + " with recompute " +
             word(c.recompute) +
             (c.recompute == Recompute::none ? " recomputes nothing" : ", which chooses it") +
             "; expected recompute selective or full, or recompute_layers auto",
         "");
}

void check_name(const Config& c, const Report& report) {
  if (const std::string& name = c.run.name; name != as_run_name(name))
    report({"run.name"},
           "run.name " + quoted(name) +
               " is not a valid name; expected at most 128 letters, digits and . _ - + = , "
               "beginning with a letter, a digit or _",
           "write " + as_run_name(name));
}

void check_metrics(const Config& c, const Report& report) {
  const EvalConfig& e = c.eval;
  if (e.translates() && c.data.validation && !c.data.validation->kind().pairs)
    report(
        {"eval.metrics", "eval.stop.metric", "data.validation.type"},
        "bleu and chrf need translations; expected data.validation.type pairs, or another metric",
        "");
  for (const Metric metric : {Metric::accuracy, Metric::perplexity})
    if (e.has(metric) && predicts_numbers(c.model))
      report({"eval.metrics", "eval.stop.metric"},
             word(metric) +
                 " is that of the first head, which predicts numbers; expected another metric, or "
                 "a head with classes before it",
             "");
  if (e.stop && e.every == 0)
    report({"eval.stop", "eval.every"},
           "eval.stop needs evaluations, but eval.every is 0; expected eval.every >= 1", "");
  if ((e.beam != 1 || e.length_penalty != 1) && !e.translates())
    report(
        {e.beam != 1 ? "eval.beam" : "eval.length_penalty", "eval.metrics"},
        "no translations are made; expected bleu or chrf in eval.metrics, or the default value 1",
        "");
}

void check_data(const Config& c, const Report& report) {
  const ModelConfig& m = c.model;
  if (m.position == Position::learned && c.train.seq_len > m.max_seq_len)
    report({"train.seq_len", "model.max_seq_len", "model.preset"},
           "train.seq_len " + std::to_string(c.train.seq_len) + " exceeds model.max_seq_len " +
               std::to_string(m.max_seq_len) +
               ", the number of rows of the learned position table; expected seq_len <= " +
               std::to_string(m.max_seq_len),
           "");
  const auto reads_text = [&](const SourceConfig& s) {
    return s.kind().plain_text() || s.kind().labelled || s.kind().chats;
  };
  const bool tokenizes =
      reads_text(c.data.train) || (c.data.validation && reads_text(*c.data.validation));
  if (tokenizes && c.data.tokenizer_or_bytes() == "bytes" && m.vocab_size < 256)
    report({"model.vocab_size", "data.tokenizer"},
           "vocab_size " + std::to_string(m.vocab_size) +
               " is too small for the bytes tokenizer, whose ids are 0 to 255; expected >= 256",
           "");
  const auto apart = [](const SourceConfig& s) {
    return s.documents != Documents::joined || s.kind().chats;
  };
  if (c.data.restart_positions != Switch::automatic && !apart(c.data.train) &&
      !(c.data.validation && apart(*c.data.validation)))
    report({"data.restart_positions", "data.train.documents"},
           "restart_positions needs the documents of a sequence to be apart; expected documents "
           "separate or packed, or restart_positions auto",
           "");
  only_with(report)(!c.data.source_tokenizer.empty(), m.source_vocab_size > 0,
                    "data.source_tokenizer", "model.source_vocab_size > 0", "data.tokenizer");
  if (m.source_vocab_size > 0 && !c.data.train.kind().pairs)
    report({"data.train.type", "model.source_vocab_size"},
           "data.train.type " + c.data.train.type +
               " makes source and target from one text, but model.source_vocab_size " +
               std::to_string(m.source_vocab_size) + " is of another vocabulary; expected " +
               types_where([](const auto& t) { return t.pairs; }),
           "");
  if (c.eval.every > 0 && !c.data.validation)
    report({"eval.every", "data.validation"},
           "eval.every is " + std::to_string(c.eval.every) +
               ", but data.validation is missing; expected both, or eval.every 0",
           "");
  check_metrics(c, report);
  if (c.checkpoint.every > 0 && c.checkpoint.dir == "none")
    report({"checkpoint.every", "checkpoint.dir"},
           "checkpoint.every is " + std::to_string(c.checkpoint.every) +
               ", but checkpoint.dir is none; expected a directory, or checkpoint.every 0",
           "");
}

}  // namespace

void fill_derived(SourceConfig& s, const ModelConfig& m) {
  if (s.mask_probability == 0 && (!s.kind().labelled || masks_labelled_text(m)))
    s.mask_probability = s.kind().mask_probability;
  if (s.mean_span_length == 0) s.mean_span_length = s.kind().mean_span_length;
}

void fill_derived(Config& c) {
  fill_derived(c.model, c.train.seq_len);
  fill_derived(c.data.train, c.model);
  if (c.data.validation) fill_derived(*c.data.validation, c.model);
  if (predicts_numbers(c.model)) std::erase(c.eval.metrics, Metric::perplexity);
  if (c.eval.stop && !c.eval.has(c.eval.stop->metric))
    c.eval.metrics.push_back(c.eval.stop->metric);
}

void check_consistency(const Config& c, const Report& report) {
  check_model(c.model, report);
  check_sources(c, report);
  check_data(c, report);
  check_schedule(c, report);
  check_parallel(c, report);
  check_name(c, report);
  check_listen(c, report);
  check_device(c, report);
  check_recompute(c, report);
  check_optimizer(c, report);
}

bool is_consistent(const Config& config) {
  bool consistent = true;
  check_consistency(config, [&](const auto&...) { consistent = false; });
  return consistent;
}

}  // namespace tfm::config
