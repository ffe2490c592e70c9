# kiln plan: sizes in, kernels out; nothing is run and nothing is cached.
$ kiln plan load_balance_backward B=4096 E=256 K=8 --arch sm_90a --no-assembler
load_balance_backward  B=4096 E=256 K=8  for sm_90a (*)
  kernel * grid * from
  kiln_load_balance* not looked for
no assembler, so no registers: *
workspace 0 B; the least the hardware must do: 8.* MiB moved, *
$ kiln plan load_balance_backward B=4096 E=256 K=8 --arch sm_80 --no-assembler --explain
load_balance_backward  B=4096 E=256 K=8  for sm_80 (*)
...
kiln_load_balance* from load_balance.ptxt:* B=4096 *E=256 *
# The ranking of a product's candidates: the chosen one is marked, what is not possible has a reason.
$ kiln plan gemm M=64 N=512 K=1024 --dtype bf16 --arch sm_90a --no-assembler --explain
gemm  M=64 N=512 K=1024  for sm_90a (NVIDIA H200)
...
gemm, 64x512x1024 (M x N x K): * on the path wgmma, the cheapest
  key wgmma:bf16:k.n:store.bf16:64x512x1024
  candidate * stages  tiles  waves  tensor * L2 * HBM  epilogues  clocks  at 1.7 GHz
  > *
...
    and * more
...
    not possible (*): *
...
$ kiln plan gemm M=64 N=512 K=1024 --dtype f32 --arch sm_90a --no-assembler --explain | tail -1
gemm, 64x512x1024 (M x N x K): mma-64x64 on the path mma: wgmma is for operands that are both bf16 or both f16
$ kiln plan gemm M=64 N=512 K=1024 --dtype bf16 --arch sm_80 --no-assembler --explain | tail -1
gemm, 64x512x1024 (M x N x K): mma-64x64 on the path mma: the target has no wgmma
$ kiln plan expert_mlp_backward B=64 T=64 H=256 F=512 --arch sm_90a --no-assembler --explain | grep 'M x N'
expert_mlp_da, 64x512x256 (M x N x K): *
expert_mlp_dw, 256x512x64, 512x256x64, 512x256x64 (M x N x K): *
expert_mlp_dx, 64x256x512+512 (M x N x K): *
$ kiln plan gemm M=64 N=512 K=1024 --dtype bf16 --arch sm_90a --no-assembler --explain --json | grep -cE '"(chosen|by|key|clocks|refused)"' | sed 's/[0-9][0-9]*/many/'
many
$ kiln plan load_balance_backward B=10 E=8 --without topk_idx --option top_k=2 --no-assembler | head -1
load_balance_backward  B=10 E=8  for sm_90a (*)
$ kiln plan load_balance_backward B=10 E=8 K=2 --json --no-assembler | grep -E '^  "(op|target|shapes)"'
  "op": "load_balance_backward",
  "target": "sm_90a",
  "shapes": "exact",
$ kiln plan load_balance_backward B=10 E=8 K=2 --dump dumped --no-assembler | tail -1; ls dumped | sed 's/.*[.]//'
PTX, reports and machine code (of an assembler) are in dumped
ptx
txt
$ ls $KILN_CACHE_DIR
ls: cannot access *: No such file or directory
[2]
# What is wrong with a command line.
$ kiln plan
kiln: kiln plan needs an operation; "kiln ops" lists them
[2]
$ kiln plan load_balance_backward B=10 E=8
kiln: topk_idx has shape [B,K], and the size of K is not known: it wants K=SIZE
[2]
$ kiln plan load_balance_backward B=10 E=8 K=2 Q=3
kiln: "Q=3" is not an axis of load_balance_backward; wanted AXIS=SIZE with a letter of its shapes
[2]
$ kiln plan load_balance_backward B=ten E=8 K=2
kiln: axis B is "ten"; wanted a whole number from 0 to 9223372036854775807
[2]
$ kiln plan load_balance_backward B=10 E=8 K=2 --dtype grad_expert_mask=bf16
kiln: --dtype grad_expert_mask=bf16: grad_expert_mask may be f32
[2]
$ kiln plan load_balance_backward B=10 E=8 K=2 --dtype mask=f32
kiln: --dtype mask=f32: wanted TYPE (*), or ARGUMENT=TYPE with an argument of load_balance_backward
[2]
$ kiln plan gemm M=8 N=8 K=8 --dtype fp8
kiln: --dtype fp8: wanted TYPE (bf16, f16, f32, i32, i64, bool), or ARGUMENT=TYPE with an argument of gemm
[2]
$ kiln plan gemm M=8 N=8 K=8 --dtype a=fp8
kiln: --dtype a=fp8: a may be bf16,f16,f32
[2]
$ kiln plan grouped_gemm G=2 M=8 N=8 K=8 Q=1
kiln: "Q=1" is not an axis of grouped_gemm; wanted AXIS=SIZE with a letter of its shapes
[2]
$ kiln plan load_balance_backward B=10 E=8 K=2 --without training
kiln: --without training: load_balance_backward needs it
[2]
$ kiln plan load_balance_backward B=10 E=8 K=2 --with bias
kiln: --with bias: load_balance_backward has no such argument
[2]
$ kiln plan load_balance_backward B=10 E=8 K=2 --arch sm_90a --device sim
kiln: --arch and --device exclude each other
[2]
$ kiln plan load_balance_backward B=10 E=8 K=2 --arch sm_12
kiln: *sm_12*
[3]
