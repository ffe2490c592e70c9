# The tool on a GPU, played by the fake driver: streams, events, device memory, machine code. It computes nothing.
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln env | grep -A2 devices
devices
  cuda:0 *, sm_90a, * multiprocessors, *
  sim *as *
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln run $GOLDEN/load_balance_backward/b5_e60_k4_t0.safetensors --device cuda:0 --repeat 3 --no-assembler
load_balance_backward  B=5 E=60 K=4  on Fake GPU * (sm_90a)
...
ran 3 times, first call * us, median * us
cache: 1 built, *
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln run $GOLDEN/load_balance_backward/b5_e60_k4_t0.safetensors --device cuda:0 --check --no-assembler | tail -1; echo ${PIPESTATUS[0]}
kiln: check failed: grad_expert_mask_out[0, 0] is NaN, *
check FAILED
1
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln run $GOLDEN/load_balance_backward/b5_e60_k4_t0.safetensors --device cuda:0 --sim-seeds 2
kiln: --sim-seeds is for the simulator; this context runs on a GPU
[2]
$ kiln run $GOLDEN/load_balance_backward/b5_e60_k4_t0.safetensors --device cuda:0
kiln: *libcuda.so.1*
[3]
