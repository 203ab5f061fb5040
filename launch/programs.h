#pragma once
// The programs as functions, of which each program calls one.
namespace tfm::launch {

int bench_main(int argc, char** argv);
int convert_main(int argc, char** argv);
int data_main(int argc, char** argv);
int doctor_main(int argc, char** argv);
int eval_main(int argc, char** argv);
int generate_main(int argc, char** argv);
int plan_main(int argc, char** argv);
int predict_main(int argc, char** argv);
int probe_main(int argc, char** argv);
int report_main(int argc, char** argv);
int train_main(int argc, char** argv);
int verify_main(int argc, char** argv);

// For a program with parts of its own, which it has added to their tables before: the program that
// the first argument names ("plan cfg.yaml"), without one that it knows "train".
int main_of(int argc, char** argv);

}  // namespace tfm::launch
