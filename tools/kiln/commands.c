/* The table of commands: see commands.h. */
#include "commands.h"

const kt_command kt_commands[] = {
    {"ops", "[OP]", "The operations, their arguments, types, axes and options.", kt_cmd_ops},
    {"run", "FILE.safetensors",
     "Run the operation of a file: in.<name> tensors and metadata op, options. --check compares the outputs.",
     kt_cmd_run},
    {"plan", "OP axis=value...",
     "What a call of these sizes would run: kernels, tiles, registers, shared memory, bytes, FLOPs.", kt_cmd_plan},
    {"warm", "[SHAPES.jsonl]...",
     "Build kernels ahead of time: of recorded shapes or of models by name, on any machine, for any GPU.", kt_cmd_warm},
    {"cache", "stat|ls|show|verify|trim|pack|merge [PATH|KEY]...", "Look at and look after the kernel cache.",
     kt_cmd_cache},
    {"bench", "[OP]", "Verify and time the cases of a file: cold and hot L2, floors, peers.", kt_cmd_bench},
    {"tune", "[OP [AXIS=SIZE...]]",
     "Measure the ways in which products may be made, and write a file of the best for KILN_TUNING.", kt_cmd_tune},
    {"fuzz", "[OP]... [AXIS=SIZE]...",
     "Random calls against the float64 reference: sizes, types, strides, options, ids, values.", kt_cmd_fuzz},
    {"env", "", "Devices, libraries found, and every KILN_ variable with its meaning.", kt_cmd_env},
    {0},
};
