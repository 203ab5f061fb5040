// Keys of `parallel`, `train`, `optimizer`, `schedule` and `loss`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe_layers_per_stage(ParallelConfig& p, FieldVisitor& v) {
  std::vector<std::int64_t>& layers = p.layers_per_stage;
  const Field item = number("layers_per_stage", 1,
                            "layers of each stage of a pipeline in order, an encoder-decoder's "
                            "encoder first; with schedule: interleaved of all virtual stages, of "
                            "which rank r has number r, r + pipeline, ...; auto: balanced by "
                            "their products"),
              f = with_word(item, "auto");
  v.special(f, {.type = "a list of counts >= 1, or `auto`",
                .read =
                    [&layers, f, item](FieldReader& reader, const YamlNode& node) {
                      layers.clear();
                      if (node.kind == YamlNode::Kind::scalar && node.text == f.automatic) return;
                      if (node.kind != YamlNode::Kind::sequence || node.items.empty())
                        return reader.error(f, node,
                                            "found " + describe(node) +
                                                "; expected a list of the layers of each stage, "
                                                "such as [8, 8, 8, 8], or auto");
                      for (const YamlNode& n : node.items)
                        if (std::int64_t count = 0; reader.read_value(item, n, count))
                          layers.push_back(count);
                    },
                .flow =
                    [&layers] {
                      std::string text;
                      for (const std::int64_t n : layers)
                        text += (text.empty() ? "" : ", ") + std::to_string(n);
                      return text.empty() ? "auto" : "[" + text + "]";
                    },
                .item = item,
                .single = false,
                .least = 1,
                .most = kAnyNumber});
}

// What data-parallel ranks share out.
void describe_data_ranks(ParallelConfig& p, FieldVisitor& v) {
  v.value(
      number("zero", 0,
             "ZeRO stage: what is sharded over the data-parallel ranks; 1: the optimizer state, "
             "2: the gradients, too, 3: the parameters, too, which are gathered layer by layer",
             3),
      p.zero);
  v.value(number("replicas", 1,
                 "HSDP: ZeRO shares out over data / replicas ranks that are neighbours, and the "
                 "gradients of the replicas are added up; a factor of data"),
          p.replicas);
  v.value(number("expert", 1,
                 "expert-parallel size: ranks that share the experts of a layer, to which tokens "
                 "travel and back; a factor of data / replicas",
                 65536),
          p.expert);
  v.value(real("expert_bound", 0,
               "rows for which each expert-parallel rank has room from each other one, as a "
               "multiple of those that an even load of experts has; a step that needs more is "
               "planned anew and repeated; 0: room for the worst load"),
          p.expert_bound);
  Field bytes =
      number("bucket_bytes", 1,
             "size of the buckets in which gradients are reduced and parameters gathered; "
             "with zero 2 and 3 a bucket ends with a layer");
  bytes.kind = FieldKind::size;
  v.value(bytes, p.bucket_bytes);
}

}  // namespace

void describe(ParallelConfig& p, FieldVisitor& v) {
  v.value(number("tensor", 1, "tensor-parallel size: ranks that share each layer", 65536),
          p.tensor);
  v.value(
      with_word(
          number("data", 1,
                 "data-parallel size: model replicas; auto: ranks / (tensor * pipeline * context)",
                 1 << 20),
          "auto"),
      p.data);
  v.value(number("pipeline", 1,
                 "pipeline-parallel size: ranks in a row, each with a stage of layers that follow "
                 "each other",
                 65536),
          p.pipeline);
  v.value(option("schedule",
                 "order of the micro-batches of a pipeline; 1f1b: one forward, one backward; "
                 "interleaved: the same with several stages on each rank, which wait less and send "
                 "more"),
          p.schedule);
  v.value(with_word(number("virtual_stages", 1,
                           "stages of each rank with schedule: interleaved; auto: 2", 64),
                    "auto"),
          p.virtual_stages);
  describe_layers_per_stage(p, v);
  v.value(number("context", 1,
                 "context-parallel size: ranks that share each sequence and exchange its keys and "
                 "values; sequence lengths are multiples of twice as many",
                 65536),
          p.context);
  v.value(
      option("context_exchange",
             "how context-parallel ranks reach each other's keys and values; gather: each gathers "
             "those of all; ring: they are passed round, on GPUs beside attention to those that "
             "have come, and a rank holds those of two at a time"),
      p.context_exchange);
  v.value(flag("sequence",
               "sequence parallelism: shard norms and dropout along the sequence within a "
               "tensor-parallel group"),
          p.sequence);
  describe_data_ranks(p, v);
  v.value(
      with_word(number("timeout", 1,
                       "seconds without progress in a collective before the job ends with exit "
                       "code 75; auto: ten times the longest step so far, between 30 and 300; with "
                       "CUDA graphs on several ranks, set it to more than the time of a step; "
                       "where checkpoints are read or written, the time of 16 bytes a parameter at "
                       "20 MB a second comes on top",
                       1'000'000),
                "auto"),
      p.timeout);
  v.value(option("backend",
                 "communication backend for GPUs; mpi: staged through host memory; auto: nccl if "
                 "it is built in and every rank has its own GPU, otherwise mpi; nccl with ranks "
                 "that share a GPU is for tests only"),
          p.backend);
}

void describe(TrainConfig& t, FieldVisitor& v) {
  v.value(number("steps", 1, "number of optimizer steps"), t.steps);
  v.value(number("global_batch_size", 1, "sequences per optimizer step, over all ranks"),
          t.global_batch_size);
  v.value(number("global_batch_tokens", 0,
                 "pairs: tokens per optimizer step, padding included and each side counted alone, "
                 "with sentences bucketed by length; replaces global_batch_size; 0: off"),
          t.global_batch_tokens);
  v.value(with_word(number("micro_batch_size", 1,
                           "sequences per rank in one forward and backward pass; gradients are "
                           "accumulated over the passes of a step; auto: those of up to 4096 "
                           "tokens, more while they fit the device's memory and save 1 % of the "
                           "predicted time, fewer where they do not fit"),
                    "auto"),
          t.micro_batch_size);
  v.value(with_word(number("micro_batch_tokens", 1,
                           "with global_batch_tokens: tokens per rank in one forward and backward "
                           "pass, padding included and each side counted alone, but at least one "
                           "sequence; replaces micro_batch_size, auto as there"),
                    "auto"),
          t.micro_batch_tokens);
  v.value(number("seq_len", 1, "tokens per sequence", 1 << 24), t.seq_len);
  v.value(Field{.name = "seed",
                .help = "seed of initialization, dropout and shuffling",
                .kind = FieldKind::integer,
                .low = 0},
          t.seed);
}

namespace {

void describe_betas(OptimizerConfig& o, FieldVisitor& v) {
  const Field f = fraction("betas", "Adam's beta1 and beta2");
  v.special(
      f, {.type = "a list of two numbers >= 0 and < 1",
          .read =
              [&o, f](FieldReader& reader, const YamlNode& node) {
                if (node.kind != YamlNode::Kind::sequence || node.items.size() != 2)
                  return reader.error(
                      f, node,
                      "found " + describe(node) +
                          (node.items.empty() ? "" : " of " + std::to_string(node.items.size())) +
                          "; expected a list of two numbers, such as [0.9, 0.95]");
                reader.read_value(f, node.items[0], o.beta1);
                reader.read_value(f, node.items[1], o.beta2);
              },
          .flow = [&o] { return "[" + number_text(o.beta1) + ", " + number_text(o.beta2) + "]"; },
          .item = f,
          .single = false,
          .least = 2,
          .most = 2});
}

void describe(AdafactorConfig& a, FieldVisitor& v) {
  v.value(Field{.name = "beta2_decay",
                .help = "the second moment takes a share t^beta2_decay of update t's squares",
                .kind = FieldKind::real,
                .low = -1,
                .high = 0},
          a.beta2_decay);
  v.value(Field{.name = "eps1",
                .help = "smallest root of the second moment that an update divides by",
                .kind = FieldKind::real,
                .low = 1.1e-19},  // its square is a float
          a.eps1);
  v.value(real("eps2", 0, "smallest root mean square of a parameter that scales its update"),
          a.eps2);
  v.value(Field{.name = "clip_threshold",
                .help = "largest root mean square of an update before it is scaled; torch's d",
                .kind = FieldKind::real,
                .low = 1},
          a.clip_threshold);
}

void describe(MuonConfig& m, FieldVisitor& v) {
  v.value(real("lr", 0,
               "peak learning rate of the matrices, which follows the same schedule as "
               "`optimizer.lr`, that of all other parameters"),
          m.lr);
  v.value(fraction("momentum", "momentum of the matrices' gradients"), m.momentum);
  v.value(flag("nesterov", "Nesterov momentum"), m.nesterov);
  v.value(number("ns_steps", 1, "iterations of Newton-Schulz", 99), m.ns_steps);
  v.value(option("adjust_lr",
                 "factor on the learning rate of a matrix; original: sqrt(max(1, rows / columns)); "
                 "match_rms_adamw: 0.2 sqrt(max(rows, columns))"),
          m.adjust_lr);
}

}  // namespace

void describe(OptimizerConfig& o, FieldVisitor& v) {
  v.value(option("type",
                 "optimizer; adamw decouples weight decay from the gradient; muon updates matrices "
                 "of hidden layers, and all other parameters as adamw"),
          o.type);
  v.value(real("lr", 0,
               "peak learning rate; with `schedule.type: noam` a factor: the rate is lr / "
               "sqrt(d_model) x "
               "min(step^-0.5, step x warmup_steps^-1.5)"),
          o.lr);
  describe_betas(o, v);
  v.value(Field{.name = "eps",
                .help = "epsilon added to Adam's denominator, of adamw, adam, lamb and muon",
                .kind = FieldKind::real,
                .low = 1.2e-38},  // a float
          o.eps);
  v.value(real("weight_decay", 0,
               "weight decay of matrices; biases, norms and position tables are not decayed"),
          o.weight_decay);
  v.value(real("grad_clip", 0, "maximum global gradient norm; 0: no clipping"), o.grad_clip);
  v.value(fraction("momentum", "momentum of sgd"), o.momentum);
  v.section(section("adafactor", "options of adafactor, which are torch.optim.Adafactor's"),
            [&o](FieldVisitor& a) { describe(o.adafactor, a); });
  v.section(section("muon", "options of muon, which are torch.optim.Muon's"),
            [&o](FieldVisitor& m) { describe(o.muon, m); });
  v.value(fraction("ema",
                   "decay of an exponential moving average of the weights, which evaluation, "
                   "generation and export use: min(ema, (1 + t) / (10 + t)) at update t; 0: off"),
          o.ema);
}

void describe(ScheduleConfig& s, FieldVisitor& v) {
  v.value(option("type", "learning rate schedule after warmup"), s.type);
  v.value(number("warmup_steps", 0,
                 "steps of linear warmup to the peak; at least 1 with `noam` and `inverse_sqrt`"),
          s.warmup_steps);
  v.value(
      real("min_lr", 0,
           "learning rate at the end of the decay; noam and inverse_sqrt: the least after warmup"),
      s.min_lr);
  v.value(number("decay_steps", 0,
                 "wsd: number of steps of the final decay; cosine, linear: step at which min_lr is "
                 "reached, 0: `train.steps`"),
          s.decay_steps);
}

void describe(LossConfig& l, FieldVisitor& v) {
  v.value(fraction("label_smoothing", "probability mass spread evenly over the vocabulary"),
          l.label_smoothing);
  v.value(option("smoothing_denominator",
                 "whether the smoothing mass includes the target class: vocabulary: yes, as in "
                 "PyTorch; others: no"),
          l.smoothing_denominator);
}

}  // namespace tfm::config
