#include <map>
#include <string_view>

#include "launch/programs.h"

namespace tfm::launch {

int main_of(int argc, char** argv) {
  static const std::map<std::string_view, int (*)(int, char**)> programs{
      {"bench", bench_main},   {"convert", convert_main}, {"data", data_main},
      {"doctor", doctor_main}, {"eval", eval_main},       {"generate", generate_main},
      {"plan", plan_main},     {"predict", predict_main}, {"probe", probe_main},
      {"report", report_main}, {"train", train_main},     {"verify", verify_main},
  };
  // A program that starts itself again does so with the arguments that it has here, the name first.
  for (int i = argc > 1 ? 1 : 0; i >= 0; --i)
    if (const auto found = programs.find(argv[i]); found != programs.end())
      return found->second(argc - i, argv + i);
  return train_main(argc, argv);
}

}  // namespace tfm::launch
