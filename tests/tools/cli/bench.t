# kiln bench: on the simulator and on a device that computes nothing; times there are the host's.
$ kiln bench gemm --cases $CASES/tiny.json --device sim --iterations 2 -o gemm.json
device "sim", in place of *
times are the host's clock around calls: they say nothing about a GPU

gemm
  case *cold us *hot us *floor us *
  M=40 N=72 K=64 * - * - * - * - * 1 * 0 B  good*
  transposed * good*
  geometric mean of 2: * us; floors * us
$ grep -cE '"(pass|same_bits_after_timing)": true' gemm.json
4
$ grep -E '^ "(timer|gpu|driver|iterations)"' gemm.json
 "gpu": "",
 "driver": "",
 "timer": "host",
 "iterations": 2,
$ kiln bench --cases $CASES/tiny.json --device sim --iterations 1 --case 2 --json | grep -E '"(group|name|launches)"' | head -4
* "name": *
      "group": "router_backward",
      "name": "T=67",
      "launches": *
$ kiln bench load_balance_backward --device null --iterations 3 --case 16 | tail -2
  B=524288 * not run*
  geometric mean of 1: * us; floors *
# The built-in cases.
$ kiln bench load_balance_backward --device null --iterations 1 --json | grep -c '"B": '
16
# What is wrong with a command line.
$ kiln bench gemm router_backward
kiln: kiln bench takes at most one operation; it got 2
[2]
$ kiln bench gem --cases $CASES/tiny.json
kiln: *tiny.json has no case of gem; it has load_balance_backward, router_backward, *
[2]
$ kiln bench --cases none.json
kiln: none.json: No such file or directory
[3]
$ echo '{"groups": [}' > wrong.json; kiln bench --cases wrong.json
kiln: wrong.json:1: *
[2]
$ echo '{"groups": [{"op": "gemm", "axes": {"Q": 3}, "cases": [{"M": 1, "N": 2, "K": 3}]}]}' > wrong.json; kiln bench --cases wrong.json
kiln: wrong.json: gemm has no axis Q
[2]
$ kiln bench gemm --case 0
kiln: --case must be at least 1
[2]
$ kiln bench gemm --cases $CASES/tiny.json --case 9 --device null
device "null", *
...
kiln: --case 9: there are 2 cases
[2]
$ kiln bench gemm --device null --iterations 0
kiln: --iterations must be at least 1
[2]
$ kiln bench gemm --device null --peers cublaslt
kiln: --peers cublaslt: peers need a GPU
[2]
$ kiln bench gemm --device null --peers mkl
kiln: --peers mkl: the peers are: cublaslt, composed
[2]
# The same on a GPU, played by fakes whose kernels compute nothing: marks, cold and hot rounds, graphs, a peer, CUPTI's
# records of them all. (What a capture has seen is never freed: a leak checker must be told.)
$ ASAN_OPTIONS=detect_leaks=0 KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 LD_LIBRARY_PATH=$BUILD/fake/fakecupti:$BUILD/fake/fakecublaslt KILN_DEVICE=cuda:0 kiln bench gemm --cases $CASES/tiny.json --case 1 --no-verify --graph --peers cublaslt --iterations 2 -o gpu.json
Fake GPU *  driver *
times: first kernel's start to last kernel's end, by CUPTI; medians of 2; L2 written over with 256.0 MiB
floors: * TB/s (a large copy, measured), 680 TFLOP/s

gemm
  case *
  M=40 N=72 K=64  3.00 ±0.00  3.00 ±0.00 * not run  cublaslt 3.00
  geometric mean of 1: 3.00 us; floors * us
$ grep -cE '"kernels": 1.0' gpu.json; grep -E '^ "timer"|^  "cublaslt"' gpu.json
6
 "timer": "cupti",
  "cublaslt": 130001
# An operation's products beside cuBLASLt's: three weight gradients in one launch, three calls of three kernels.
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 LD_LIBRARY_PATH=$BUILD/fake/fakecupti:$BUILD/fake/fakecublaslt KILN_DEVICE=cuda:0 kiln bench expert_mlp_backward --cases $CASES/tiny.json --case 1 --no-verify --peers cublaslt --iterations 1 --cold -o parts.json | grep -A2 'beside cuBLASLt'; grep -c '"part"' parts.json
  the products within the calls, beside cuBLASLt's (the weight gradients: its three calls)
    case       da us  cublaslt  ratio  3 dw us  cublaslt  ratio  dx us  cublaslt  ratio
    B=41 T=19   3.50      3.00  0.857     3.50     10.50  3.000   3.50      7.00  2.000
3
# Events alone: the fake takes a quarter of a millisecond for an event and for a kernel.
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 LD_LIBRARY_PATH=$BUILD/fake/fakecupti KILN_DEVICE=cuda:0 kiln bench gemm --cases $CASES/tiny.json --case 1 --no-verify --no-cupti --cold --iterations 2 | tail -2
  M=40 N=72 K=64  500.00 ±0.00 * - * not run*
  geometric mean of 1: 500.00 us; floors * us
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 LD_LIBRARY_PATH=$BUILD/fake/fakecupti KILN_DEVICE=cuda:0 kiln bench gemm --cases $CASES/tiny.json --case 1 --iterations 1 --no-cupti 2>&1 >/dev/null; echo $?
kiln: gemm, M=40 N=72 K=64: d has 1440 words that are not finite or were not written
kiln: some results are wrong
1
# CUPTI that does not do what it should: said, and events are used.
$ FAKECUPTI=refuses KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 LD_LIBRARY_PATH=$BUILD/fake/fakecupti KILN_DEVICE=cuda:0 kiln bench gemm --cases $CASES/tiny.json --case 1 --no-verify --iterations 1 -o refused.json | tail -1; grep '^ "timer"' refused.json
kiln: cuptiActivityEnable: CUPTI says 1, a failure of the fake CUPTI; from here on times are those of CUDA events
  geometric mean of 1: 500.00 us; floors * us
 "timer": "events",
$ FAKECUPTI=forgets KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 LD_LIBRARY_PATH=$BUILD/fake/fakecupti KILN_DEVICE=cuda:0 kiln bench gemm --cases $CASES/tiny.json --case 1 --no-verify --iterations 1 --cold 2>&1 >/dev/null
kiln: CUPTI recorded no kernel of call 5; from here on times are those of CUDA events
# What the launches of a large operation took, one after the other, beside what their weights' bytes take.
$ ASAN_OPTIONS=detect_leaks=0 KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 LD_LIBRARY_PATH=$BUILD/fake/fakecupti KILN_DEVICE=cuda:0 kiln bench routed_experts_backward --cases $CASES/tiny.json --case 1 --no-verify --iterations 1 --cold -o routed.json | grep -cE '^ +kiln_'
9
$ grep -cE '"kernel": "kiln_' routed.json; grep -cE '"floor_bytes"' routed.json; grep -E '"us": 3[.]0' routed.json | head -1
9
4
     "us": 3.0
