// Keys of `parallel`, `train`, `optimizer`, `schedule` and `loss`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

void describe(ParallelConfig& p, FieldVisitor& v) {
  v.value(number("tensor", 1, "ranks that split each layer", 65536), p.tensor);
  v.value(with_word(number("data", 1, "model replicas; auto: ranks / tensor", 65536), "auto"),
          p.data);
  v.value(up_to(1, number("pipeline", 1, "pipeline stages"),
                "layers cannot be split over ranks by depth"),
          p.pipeline);
  v.value(up_to(1, number("context", 1, "ranks that split a sequence"),
                "sequences cannot be split over ranks"),
          p.context);
  v.value(
      flag("sequence", "norms and dropout are split along the sequence inside the tensor group"),
      p.sequence);
  v.value(up_to(1, number("zero", 0, "1: optimizer state is split over the replicas"),
                "gradients and parameters cannot be split over the replicas"),
          p.zero);
  Field bytes = number("bucket_bytes", 1, "gradients are reduced in pieces of this size");
  bytes.kind = FieldKind::size;
  v.value(bytes, p.bucket_bytes);
  v.value(with_word(number("timeout", 1,
                           "seconds without progress in a collective after which the job ends with "
                           "exit code 75; auto: "
                           "ten times the longest step so far, between 30 and 300; CUDA graphs "
                           "over several ranks need more than a step takes",
                           1'000'000),
                    "auto"),
          p.timeout);
  v.value(option("backend",
                 "what moves tensors between GPUs; mpi: through memory of the host; auto: nccl "
                 "where it is built in and every rank has a GPU of its "
                 "own, else mpi; nccl where ranks share a GPU is for tests"),
          p.backend);
}

void describe(TrainConfig& t, FieldVisitor& v) {
  v.value(number("steps", 1, "optimizer steps"), t.steps);
  v.value(number("global_batch_size", 1, "sequences per optimizer step, over all ranks"),
          t.global_batch_size);
  v.value(number("global_batch_tokens", 0,
                 "pairs: tokens of a side per optimizer step, in batches of like length; replaces "
                 "global_batch_size; 0: off"),
          t.global_batch_tokens);
  v.value(with_word(number("micro_batch_size", 1,
                           "sequences per rank and pass; the rest is gradient accumulation"),
                    "auto"),
          t.micro_batch_size);
  v.value(number("seq_len", 1, "tokens per sequence", 1 << 24), t.seq_len);
  v.value(Field{.name = "seed",
                .help = "of initialization, dropout and shuffling",
                .kind = FieldKind::integer,
                .low = 0},
          t.seed);
}

namespace {

void describe_betas(OptimizerConfig& o, FieldVisitor& v) {
  const Field f = fraction("betas", "decay of the averages of the gradient and of its square");
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

}  // namespace

void describe(OptimizerConfig& o, FieldVisitor& v) {
  const std::string_view legal = "an optimizer that works on each element alone is expected";
  v.value(option("type", "adamw decouples weight decay", {{"lamb", legal}, {"adafactor", legal}}),
          o.type);
  v.value(real("lr", 0, "highest learning rate"), o.lr);
  describe_betas(o, v);
  v.value(Field{.name = "eps",
                .help = "added to the root of the second average",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          o.eps);
  v.value(real("weight_decay", 0, "on matrices; not on biases, norms and position tables"),
          o.weight_decay);
  v.value(real("grad_clip", 0, "largest norm of the whole gradient; 0: off"), o.grad_clip);
  v.value(fraction("momentum", "of sgd"), o.momentum);
  v.value(fraction("ema",
                   "decay of an average of the weights, with which evaluation, generation and "
                   "export work; 0: off"),
          o.ema);
}

void describe(ScheduleConfig& s, FieldVisitor& v) {
  v.value(option("type", "course of the learning rate after warmup"), s.type);
  v.value(number("warmup_steps", 0, "steps of linear growth to `optimizer.lr`"), s.warmup_steps);
  v.value(real("min_lr", 0, "where the decay ends"), s.min_lr);
  v.value(number("decay_steps", 0,
                 "wsd: length of the final decay; cosine, linear: step at which min_lr is reached, "
                 "0: `train.steps`"),
          s.decay_steps);
}

void describe(LossConfig& l, FieldVisitor& v) {
  v.value(fraction("label_smoothing", "probability spread evenly over the vocabulary"),
          l.label_smoothing);
  v.value(option("smoothing_denominator",
                 "the label has a part of what is spread, or only the other ids have"),
          l.smoothing_denominator);
}

}  // namespace tfm::config
