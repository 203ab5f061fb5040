// tfm-report: one page with pictures of a run, or of several runs compared.
#include <cstdio>
#include <filesystem>

#include "io/file.h"
#include "launch/programs.h"
#include "launch/support/program.h"
#include "report/inside.h"
#include "report/page.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    R"(usage: tfm-report [RUN_DIR...] [--probe FILE [--tokenizer DIR]] -o FILE.html
  RUN_DIR            directory of a run's metrics.jsonl, that file, or a directory with runs below it,
                     such as a sweep's; several runs are compared. Results of tfm-bench scaling
                     (*.json, *.csv) beside metrics.jsonl are shown, too
  --probe FILE       what tfm-probe wrote with --attention and --activations: maps of attention, and
                     the norm of layers.*.output by layer, of the first sequence
  --tokenizer DIR    tokenizer by which the queries of these maps are named, instead of by their ids
  --output FILE      the page to write; -o FILE is short for it
  --help, --version
The page needs nothing beside it: pictures are inline SVG, and nothing is loaded from a network.
It shows loss, evaluations, learning rate, gradient norm, throughput, time by phase, memory,
collectives, scaling and the configuration, each with a table. The run may be going on. Damaged
lines of metrics.jsonl are skipped, and the page says so.
)";

int run(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  std::string output = "--output";
  for (char*& word : words)
    if (std::string_view(word) == "-o") word = output.data();
  const launch::Arguments args(argc, words.data(), {{"--output"}, {"--probe"}, {"--tokenizer"}});
  std::vector<std::string> paths = args.positional();
  // A path such as lr=0.1 reads like an override.
  paths.insert(paths.end(), args.overrides().begin(), args.overrides().end());
  const std::string probe = args.get("--probe");
  if (paths.empty() && probe.empty())
    throw Error(ExitCode::usage, "expected a run directory, which holds metrics.jsonl; see --help");
  if (args.has("--tokenizer") && probe.empty())
    throw Error(ExitCode::usage, "--tokenizer names what --probe shows; expected --probe FILE");
  const std::string to = args.get("--output");
  if (to.empty())
    throw Error(ExitCode::usage, "the page to write is missing; expected -o FILE.html");
  const std::vector<report::Run> runs =
      paths.empty() ? std::vector<report::Run>() : report::read_runs(paths);
  std::vector<std::string> files{probe};
  for (const report::Run& r : runs) files.insert(files.end(), r.files.begin(), r.files.end());
  for (const std::string& file : files)
    if (std::error_code none; std::filesystem::equivalent(file, to, none))
      throw Error(ExitCode::usage, to + ": the page is made from it; choose another file");
  std::unique_ptr<const tokenizer::Tokenizer> names;
  if (args.has("--tokenizer")) names = tokenizer::load_tokenizer(args.get("--tokenizer"));
  const std::string page =
      report::page(runs, probe.empty() ? std::string() : report::inside(probe, names.get()));
  io::replace_file(to, page);
  for (const report::Run& r : runs)
    for (const std::string& note : r.notes)
      std::fprintf(stderr, "warning: %s: %s\n", r.path.c_str(), note.c_str());
  std::printf("%s: %zu KiB\n", to.c_str(), (page.size() + 1023) / 1024);
  return 0;
}

}  // namespace

int tfm::launch::report_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run, tfm::launch::Output::results,
                              tfm::launch::kFirstRankAlone);
}
