/* The table of commands: see commands.h. */
#include "commands.h"

const kt_command kt_commands[] = {
    {"ops", "[OP]", "The operations, their arguments, types, axes and options.", kt_cmd_ops, ""},
    {"run", "FILE.safetensors",
     "Run the operation of a file: in.<name> tensors and metadata op, options. --check compares the outputs.",
     kt_cmd_run, ""},
    {"plan", "OP axis=value...",
     "What a call of these sizes would run: kernels, tiles, registers, shared memory, bytes, FLOPs.", kt_cmd_plan,
     "kiln plan router_backward T=4096 H=2048 E=128 K=8 --arch sm_90a --explain\n"
     "kiln plan routed_experts_backward --model GLM-4.5-Air T=4096\n"
     "kiln plan router_backward --model DeepSeek-V3 --variants"},
    {"warm", "[SHAPES.jsonl]...",
     "Build kernels ahead of time: of recorded shapes or of models by name, on any machine, for any GPU.", kt_cmd_warm,
     "Files have a line a call, as KILN_RECORD writes them and the errors of KILN_ON_MISS=error name them; - is the "
     "standard input.\n"
     "What is built already is skipped; an interrupted run goes on where it was. Calls that fail are listed, and the "
     "exit code is 1.\n"
     "kiln warm shapes.jsonl --arch sm_90a,sm_80 -o kernels.pack\n"
     "kiln warm --model GLM-4.5-Air --tokens 1,1024,8192 --op router_backward --arch sm_90a"},
    {"cache", "stat|ls|show|verify|trim|pack|merge [PATH|KEY]...", "Look at and look after the kernel cache.",
     kt_cmd_cache,
     "stat\t[PATH] entries and bytes of a directory or a pack (the default directory)\n"
     "ls\t[PATH] its entries\n"
     "show\tKEY [PATH] all that one entry says of itself; KEY: the start of its name\n"
     "verify\t[PATH] expand every entry again and compare; exit code 1 if one is damaged or differs\n"
     "trim\t[DIR] --max BYTES: remove what was used longest ago\n"
     "pack\t[PATH] -o PACK: all entries into one file\n"
     "merge\tPATH... -o PACK: those of several; the first of equal ones is kept"},
    {"bench", "[OP]", "Verify and time the cases of a file: cold and hot L2, floors, peers.", kt_cmd_bench, ""},
    {"tune", "[OP [AXIS=SIZE...]]",
     "Measure the ways in which products may be made, and write a file of the best for KILN_TUNING.", kt_cmd_tune, ""},
    {"fuzz", "[OP]... [AXIS=SIZE]...",
     "Random calls against the float64 reference: sizes, types, strides, options, ids, values.", kt_cmd_fuzz, ""},
    {"env", "", "Devices, libraries found, and every KILN_ variable with its meaning.", kt_cmd_env, ""},
    {0},
};
