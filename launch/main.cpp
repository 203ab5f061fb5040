#include "launch/programs.h"

int main(int argc, char** argv) { return tfm::launch::TFM_PROGRAM(argc, argv); }
