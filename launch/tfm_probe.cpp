// tfm-probe: one forward (and backward) pass on tensors given from outside.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "comm/watchdog.h"
#include "config/settings.h"
#include "huggingface/architecture.h"
#include "huggingface/export.h"
#include "inference/inference.h"
#include "inference/initial_weights.h"
#include "inference/loaded_model.h"
#include "io/safetensors.h"
#include "launch/probe/ablate.h"
#include "launch/probe/inside.h"
#include "launch/programs.h"
#include "launch/support/device_choice.h"
#include "train/engine.h"

namespace {

using namespace tfm;
using Output = launch::OutputTensor;
using launch::ProbeBatch;

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-probe MODEL_DIR --batch IN.safetensors --out OUT.safetensors
                                [OPTION...] [section.key=value ...]
  MODEL_DIR      a Hugging Face directory, a checkpoint, a directory of checkpoints, or the folder of
                 a run
  --batch FILE   int64 tensors that the model uses, and no others, named as in transformers:
                 input_ids (B, T), attention_mask, global_attention_mask, token_type_ids,
                 decoder_input_ids (default: the labels shifted right), decoder_attention_mask,
                 prefix_lengths (B) of attention.prefix (default: 0),
                 labels (-100: ignored; not shifted for a decoder); HEAD_label (B) of a head that
                 classifies sequences, such as next_sentence_label; HEAD_labels (B, T) of one that
                 tags tokens; HEAD_label (B), float32 (NaN: ignored), of one of type regress; all are
                 called labels if the model has no other head; of one of type embed, labels (B): at
                 each query the index of its document among those of its group, else -100
  --out FILE     float32 logits (B, T, V), logits.HEAD (B, classes), (B, T, classes) or (B, 1),
                 embedding (B, C) and, with labels, loss (1), the weighted sum of the means of heads
                 over all labels that are not ignored; NaN if all of a head are
  --gradients    also write grad.NAME for every parameter, with Hugging Face's names and shapes
  --activations NAME...
                 also write these values of the forward pass, NAME (B, T, width); `layers.*.output`
                 is that of every layer, `all` everything
  --attention LAYER[:HEAD]...|all
                 also write the weights that queries give to keys, attention.LAYER (B, H, T, S): of
                 an encoder_decoder, LAYER is encoder.N, decoder.N or cross.N
  --list         print the names of both with their shapes, and do nothing else; without a batch
                 its sizes are letters
  --ablate PART:unit=I,... and PART:head=I,...
                 put hidden units of a feed-forward network (layers.3.ffn:unit=17,19) or the outputs
                 of heads (layers.2.attention:head=0) to zero, all that are named together, and
                 write loss.ablated; with `all` instead of numbers write ablation.PART (units or
                 heads), by how much the loss changes without each of them alone
  --patch NAME=FILE
                 put the tensor NAME, or the only one, of a safetensors file in the place of that
                 value; write loss.patched. Activations and weights of attention are those of the
                 model with such changes, all else is that of the model as it is
  --help, --version
Runs one forward pass (and one backward pass) without dropout, at any layout under mpirun, and on
GPUs with device=cuda. With parallel.pipeline or parallel.context logits come from a pass of their
own, in which ranks share sequences instead.
)";

// Of each row: classes, one number, or a vector.
std::int64_t classes_of(const config::HeadConfig& head, const config::ModelConfig& m) {
  return head.type == "lm"        ? m.vocab_size
         : head.type == "regress" ? 1
         : head.embeds()          ? m.d_model
                                  : head.classes;
}
bool of_tokens(const config::HeadConfig& head) { return head.type == "lm" || head.type == "tag"; }

// Of the ranks of a mesh without stages and shares of sequences, which are for training alone.
std::vector<float> logits_of(const nn::Model& model, const comm::RankContext& context,
                             const inference::Weights& weights, const ProbeBatch& b,
                             const config::ModelConfig& config, const config::HeadConfig& head) {
  const comm::Mesh& mesh = context.mesh;
  const std::int64_t classes = classes_of(head, config), T = of_tokens(head) ? b.shape.length : 1;
  nn::BatchShape mine = b.shape;
  mine.sequences = ceil_div(b.shape.sequences, mesh.layout.size(nn::kBatchAxes));
  inference::Inference inference(model, context, weights, mine, classes, head.name);
  data::DataLoader loader(b, {data::DataLoader::rank_shape(inference.recording(), mine.sequences)},
                          data::LoaderOptions::of(mesh, 1));
  const Batch& batch = loader.load(0);
  inference.run(batch.fields);
  std::vector<float> all(static_cast<std::size_t>(b.shape.sequences * T * classes));
  for (std::int64_t r = 0; r < mine.sequences * T; ++r) {
    const auto row = inference.row(r);  // collective over the tensor group
    if (r < batch.sequences * T)
      std::copy(row.begin(), row.end(), all.begin() + (batch.first * T + r) * classes);
  }
  mesh.group(nn::kBatchAxes)
      .all_reduce({all.data(), DType::f32, {static_cast<std::int64_t>(all.size())}});
  return all;
}

// Unsharded gradients by part, on every rank; none of what is not trained.
std::map<std::string, Output> gradients_of(train::Engine& e) {
  std::map<std::string, Output> whole;
  const comm::Mesh& mesh = e.plan().mesh;
  const nn::ParameterSet& parameters = e.model().parameters();
  std::vector<float> mine(static_cast<std::size_t>(parameters.flat_elements()));
  device::download(e.device().stream(), mine.data(), e.flat().gradients, std::ssize(mine) * 4);
  for (int i = 0; i < parameters.size(); ++i) {
    if (!parameters.spec(i).trained || parameters.spec(i).evens_load) continue;
    for (const nn::PartSpec& p : parameters.spec(i).parts) {
      Output& o = whole[p.name] = {"grad." + p.name, {p.rows}, {}};
      if (const std::int64_t cols = parameters.spec(i).cols) o.shape.push_back(cols);
      o.data.resize(static_cast<std::size_t>(p.rows * (o.shape.size() > 1 ? o.shape[1] : 1)));
    }
  }
  for (const nn::PartSlice& p : parameters.slices())
    if (whole.contains(p.name) &&
        parameters.first_of_copies(p.parameter, nn::kModelAxes | nn::kTokenAxes))
      nn::ParameterSet::gather(p, mine.data(), whole[p.name].data.data());
  for (auto& [name, o] : whole)
    mesh.world().all_reduce({o.data.data(), DType::f32, {std::ssize(o.data)}});
  return whole;
}

// Of weights that came from the architecture `type`, or from none (empty).
void add_gradients(train::Engine& e, const std::string& type, std::vector<Output>& out) {
  const auto whole = gradients_of(e);
  const auto part = [&](const std::string& name) { return whole.at(name).data; };
  const config::ModelConfig& m = e.plan().config.model;
  std::vector<huggingface::ExchangedTensor> tensors;
  const huggingface::Architecture* architecture = nullptr;
  try {
    architecture = &huggingface::architecture_for(m, type);
    tensors = architecture->exchanged(m);
  } catch (const Error&) {  // no transformers architecture: tfm's names
    for (const auto& [name, o] : whole) out.push_back(o);
    return;
  }
  std::erase_if(tensors, [&](const auto& t) { return !whole.contains(t.parts.front()); });
  for (const huggingface::ExchangedTensor& t : tensors)
    out.push_back({"grad." + architecture->written_name(m, t.name), t.shape,
                   t.overridden ? std::vector<float>(static_cast<std::size_t>(t.elements()))
                                : huggingface::compose(t, part)});
}

config::Config probe_config(const std::string& dir, const std::vector<std::string>& overrides) {
  config::Config c = inference::checkpoint_config(dir, overrides);
  if (c.loss.label_smoothing > 0)  // of the override, or of the run
    if (const std::string changed =
            config::changed_settings(c, inference::checkpoint_config(dir, {}), {"loss."});
        !changed.empty())
      throw Error(ExitCode::usage,
                  changed + ": a probe's loss is without label smoothing; remove the override");
  c.model.set_dropout({});
  c.model.for_each_kind(
      [](config::LayerConfig& l) { l.experts.capacity_factor = l.experts.jitter = 0; });
  c.loss = {};
  c.parallel.zero = 0;
  c.parallel.replicas = 1;
  return c;
}

// For `ranks` that each have a share of the sequences of `batch`.
config::Config resolved(config::Config c, const ProbeBatch& batch, int ranks) {
  const bool sequence = c.parallel.sequence;
  c.parallel.sequence = false;  // checked below, for the shape given
  c.train.global_batch_tokens = c.train.micro_batch_tokens = 0;
  c.train.micro_batch_size = 0;                                // auto
  c.train.global_batch_size = ranks * c.sequences_together();  // a multiple of the data ranks
  config::resolve_for_ranks(c, ranks);
  const std::int64_t sequences = ceil_div(batch.shape.sequences, c.parallel.data);
  const auto divides = [&](std::int64_t length) {
    return sequences * (length / c.parallel.context) % c.parallel.tensor == 0;
  };
  c.parallel.sequence =
      sequence && divides(batch.shape.length) && divides(batch.shape.source_length);
  return c;
}

// Of every head.
std::vector<Output> logits_of(const nn::Model& model, const comm::RankContext& context,
                              const inference::Weights& weights, const ProbeBatch& b,
                              const config::ModelConfig& m) {
  std::vector<Output> all;
  for (const config::HeadConfig& head : m.heads) {
    Output& o = all.emplace_back();
    o.name = head.type == "lm" ? "logits" : head.embeds() ? "embedding" : "logits." + head.name;
    o.shape = {b.shape.sequences, classes_of(head, m)};
    if (of_tokens(head)) o.shape.insert(o.shape.begin() + 1, b.shape.length);
    o.data = logits_of(model, context, weights, b, m, head);
  }
  return all;
}

std::vector<Output> logits_without_stages(const std::string& dir, config::Config c,
                                          const ProbeBatch& batch, launch::Launch& launch) {
  c.parallel = {.tensor = c.parallel.tensor, .backend = c.parallel.backend};
  c = resolved(c, batch, launch.ranks);
  const inference::LoadedModel m = inference::load_model(dir, c, launch.rank_context(c));
  return logits_of(*m.model, m.rank_context, m.weights(), batch, c.model);
}

void expect_positions(const std::string& batch, const config::Config& config, std::int64_t chunks) {
  if (config.model.position == config::Position::learned &&
      config.train.seq_len > config.model.max_seq_len)
    throw Error(ExitCode::input,
                batch + ": sequences of " + std::to_string(config.train.seq_len) + " tokens" +
                    (chunks > 1 ? ", in " + std::to_string(chunks) + " chunks of equal length"
                                : std::string()) +
                    "; expected at most the position table's " +
                    std::to_string(config.model.max_seq_len) + " rows");
}

// What is asked of the inside of the model, and what is changed there.
struct Inside {
  launch::Asked asked;
  std::vector<launch::Patch> patches;
  std::vector<launch::Ablation> ablations;
};

// From "NAME=FILE": the tensor of that name, or the file's only one.
launch::Patch patch_of(const std::string& text, const launch::Contents& contents,
                       std::int64_t sequences) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw Error(ExitCode::usage, "--patch " + in_quotes(text) + ": expected NAME=FILE");
  const launch::Activation& a = contents.activation("--patch", text.substr(0, equals));
  const io::SafetensorsReader file(text.substr(equals + 1));
  const std::string name =
      file.has(a.name) || file.tensors().size() != 1 ? a.name : file.tensors().begin()->first;
  const std::vector<std::int64_t> expected{sequences, a.length, a.width};
  if (file.info(name).shape != expected)
    throw Error(ExitCode::input, file.path() + ": tensor " + in_quotes(name) + " is (" +
                                     join(file.info(name).shape) + "); expected (" +
                                     join(expected) + ") as " + a.name);
  return {a, file.read<float>(name)};
}

// `all` changes each unit or head of a part alone, beside what is named.
void expect_once(const std::vector<launch::Ablation>& ablations) {
  for (const launch::Ablation& a : ablations)
    if (a.which.empty() && std::ranges::count(ablations, a.weight, &launch::Ablation::weight) > 1)
      throw Error(ExitCode::usage,
                  "--ablate " + in_quotes(a.part) +
                      " is asked for twice, once with `all`; expected one of them");
}

Inside inside_of(const launch::Arguments& args, const config::Config& config,
                 const ProbeBatch& given) {
  Inside inside;
  const auto asks = [&](const char* option) { return args.has(option); };
  if (asks("--activations") || asks("--attention") || asks("--patch")) {
    const launch::Contents contents(config, given.shape);
    inside.asked = {contents.activations_of(args.all("--activations")),
                    contents.maps_of(args.all("--attention"))};
    for (const std::string& text : args.all("--patch"))
      inside.patches.push_back(patch_of(text, contents, given.shape.sequences));
  }
  for (const std::string& text : args.all("--ablate"))
    inside.ablations.push_back(launch::ablation_of(text, config));
  expect_once(inside.ablations);
  const bool of_each = std::ranges::any_of(
      inside.ablations, [](const launch::Ablation& a) { return a.which.empty(); });
  const bool changed = !inside.ablations.empty() || !inside.patches.empty();
  if (!given.labelled && (of_each || (changed && inside.asked.empty())))
    throw Error(ExitCode::input, args.get("--batch") +
                                     ": there are no labels; --ablate and --patch need a loss, or "
                                     "--activations or --attention");
  return inside;
}

// Ids of the first sequence, by which a report names rows of attention; of a file without, none.
std::map<std::string, std::string> first_ids(const ProbeBatch& b, const launch::Asked& asked) {
  std::map<std::string, std::string> ids;
  if (asked.maps.empty()) return ids;
  for (const Field field : {Field::ids, Field::source_ids})
    if (const auto found = b.fields.find(field); found != b.fields.end()) {
      const auto first = found->second.begin();
      ids[std::string(info_of(field).name)] =
          join(std::vector<std::int64_t>(first, first + b.shape.width(field)));
    }
  return ids;
}

// One pass with all changes, then one for each unit or head of what is to be put to zero alone.
void add_inside(train::Engine& engine, const ProbeBatch& given, const ProbeBatch& batch,
                const Inside& inside, std::vector<Output>& out) {
  if (inside.asked.empty() && inside.patches.empty() && inside.ablations.empty()) return;
  launch::InsidePass pass(engine, given, batch, inside.asked, inside.patches);
  std::vector<std::unique_ptr<launch::ZeroColumns>> zero;
  for (const launch::Ablation& a : inside.ablations)
    for (const std::int64_t i : a.which)
      zero.push_back(std::make_unique<launch::ZeroColumns>(engine, a.weight, i * a.width, a.width));
  const double loss = pass.run();
  for (Output& o : pass.asked()) out.push_back(std::move(o));
  if (!batch.labelled) return;
  const auto written = [&](double x) { return batch.ignored ? NAN : static_cast<float>(x); };
  if (!zero.empty() || !inside.patches.empty())
    out.push_back({zero.empty() ? "loss.patched" : "loss.ablated", {1}, {written(loss)}});
  for (const launch::Ablation& a : inside.ablations) {
    if (!a.which.empty()) continue;
    Output& o = out.emplace_back(Output{"ablation." + a.part, {a.count}, {}});
    for (std::int64_t i = 0; i < a.count; ++i) {
      const launch::ZeroColumns without(engine, a.weight, i * a.width, a.width);
      o.data.push_back(written(pass.run() - loss));
    }
  }
}

int list(const launch::Arguments& args, const std::string& dir, const config::Config& config) {
  const std::string text =
      args.has("--batch")
          ? launch::list_of_contents(config, launch::read_probe_batch(args, dir, config).shape)
          : launch::list_of_contents(config);
  if (rank_of_launch() == 0) std::fputs(text.c_str(), stdout);
  return 0;
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv,
                               {{"--batch"},
                                {"--out"},
                                {"--gradients", false},
                                {"--activations", true, true},
                                {"--attention", true, true},
                                {"--ablate"},
                                {"--patch"},
                                {"--list", false}},
                               config::meant_key);
  if (!args.has("--list") && (!args.has("--batch") || !args.has("--out")))
    throw Error(ExitCode::usage, "expected --batch and --out; see --help");
  if (std::error_code none;
      std::filesystem::equivalent(args.get("--batch"), args.get("--out"), none))
    throw Error(ExitCode::usage,
                "--out " + in_quotes(args.get("--out")) + " is the batch; choose another file");
  launch::Launch launch;
  args.check_outputs({"--out"});
  const std::string dir = launch.verified_path(args.only("model directory"));
  config::Config config = probe_config(dir, args.overrides());
  if (args.has("--list")) return list(args, dir, config);
  launch::choose_device(launch, config);
  launch.check_same(config);
  const ProbeBatch given = launch::read_probe_batch(args, dir, config);
  const Inside inside = inside_of(args, config, given);
  const std::int64_t chunks = config.parallel.context > 1 ? 2 * config.parallel.context : 1;
  const ProbeBatch batch = launch::padded(given, chunks);
  config.train.seq_len = std::max(batch.shape.length, batch.shape.source_length);
  expect_positions(args.get("--batch"), config, chunks);
  const config::Config read = config;
  config = resolved(config, batch, launch.ranks);
  std::vector<Output> out;
  const bool in_parts = config.parallel.pipeline * config.parallel.context > 1;
  if (in_parts) out = logits_without_stages(dir, read, given, launch);

  const comm::Mesh mesh = launch.mesh(config::layout_of(config));
  nn::BatchShape mine = batch.shape;
  mine.sequences = ceil_div(batch.shape.sequences, config.parallel.data);
  train::Engine engine(plan::make_step_plan(config, mesh, DType::f32, mine), launch.device(config));
  const comm::Watchdog watchdog(
      mesh, config.parallel.longest_wait() +
                checkpoint::longest_transfer(engine.model().parameters().total_elements()));
  const inference::InitialWeights weights =
      inference::open_initial_weights(dir, config.model, engine.model().parameters());
  engine.set_weights(weights.read);
  if (!in_parts)
    out = logits_of(engine.model(), engine.rank_context(),
                    {engine.model().parameters(), engine.flat().parameters}, batch, config.model);
  if (batch.labelled) {
    data::DataLoader loader = engine.training_loader(batch);
    const train::StepResult r = engine.compute_gradients(1, loader.load(0));
    out.push_back({"loss", {1}, {batch.ignored ? NAN : static_cast<float>(r.loss)}});
    if (args.has("--gradients"))
      add_gradients(engine, huggingface::original_type(weights.provenance), out);
  } else if (args.has("--gradients")) {
    throw Error(ExitCode::input,
                args.get("--batch") + ": there are no labels; --gradients needs a loss");
  }
  add_inside(engine, given, batch, inside, out);
  if (mesh.rank() != 0) return 0;
  std::vector<io::TensorEntry> entries;
  for (const Output& o : out) {
    if (std::ranges::count(out, o.name, &Output::name) > 1)
      throw Error(ExitCode::usage, in_quotes(o.name) + " is asked for twice");
    entries.push_back({o.name, "F32", o.shape});
  }
  io::SafetensorsWriter writer(args.get("--out"), entries, first_ids(given, inside.asked));
  for (const Output& o : out) writer.write(std::span<const float>(o.data));
  writer.finish();
  return 0;
}

}  // namespace

int tfm::launch::probe_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run);
}
