# kiln run on the simulator: a golden case, twice with one cache, then with its outputs changed.
$ kiln run $GOLDEN/load_balance_backward/b130_e100_k3_t1.safetensors --check --no-assembler
load_balance_backward  B=130 E=100 K=3  on the simulator, as * (sm_90a)
outputs grad_expert_mask_out f32
  kernel * grid * PTX lines * from
  kiln_load_balance_b130_e100_* built
no assembler, so no registers: *
ran 1 time, first call *, * warp instructions simulated
cache: 1 built, 0 from memory, 0 from packs, 0 from disk (*/cache)
error against the file's outputs
  output                max error  of its bound  Frobenius  worst slice*
  grad_expert_mask_out * ok
check passed
$ kiln run $GOLDEN/load_balance_backward/b130_e100_k3_t1.safetensors --check --no-assembler | grep -E '^(cache|check)'
cache: 0 built, 0 from memory, 0 from packs, 1 from disk (*/cache)
check passed
$ for f in $GOLDEN/load_balance_backward/*; do kiln run $f --check --sim-seeds 3 --repeat 2 | tail -1; done
check passed
check passed
check passed
check passed
# Without outputs in the file, all are computed and compared with the reference; -o writes a file that passes again.
$ kiln run $GOLDEN/load_balance_backward/b5_e60_k4_t0.safetensors -o written | head -2
load_balance_backward  B=5 E=60 K=4  on the simulator, as * (sm_90a)
outputs grad_expert_mask_out f32
$ kiln run written --check | tail -1
check passed
$ kiln run $GOLDEN/load_balance_backward/b5_e60_k4_t0.safetensors -o /nowhere/x > /dev/null
kiln: cannot write /nowhere/x: No such file or directory
[3]
# One value of an output changed: element [5, 7] of the file's float64 values.
$ f=$GOLDEN/load_balance_backward/b37_e256_k8_t1.safetensors; cp $f changed; at=$((8 + $(od -An -tu8 -N8 $f) + 37 * 256 * 8 + 37 * 8 * 8 + (5 * 256 + 7) * 8)); printf '\x40\x40' | dd of=changed bs=1 seek=$((at + 6)) conv=notrunc status=none
$ kiln run changed --check
...
  grad_expert_mask_out * FAILED: grad_expert_mask_out[5, 7] is off by *
check FAILED
kiln: check failed: grad_expert_mask_out[5, 7] is off by * its bound; 1 elements are over their bound
[1]
$ kiln run changed | tail -1
cache: * from disk (*/cache)
$ kiln run changed --check --json > report; echo $?; grep -E '"(pass|worst_place|bad_elements|exit_code)"' report
kiln: check failed: grad_expert_mask_out[5, 7] is off by * its bound; 1 elements are over their bound
1
*"pass": false,
*"pass": false,
*"worst_place": "[5,7]",
*"bad_elements": 1,
*"exit_code": 1
# Kernels that could not be written are counted: here files lie where the cache's folders would be.
$ mkdir -m 700 full full/v1; for i in $(seq 0 255); do : > full/v1/$(printf %02x $i); done; KILN_LOG=0 KILN_CACHE_DIR=$PWD/full kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --no-assembler | tail -1
cache: 1 built, 0 from memory, 0 from packs, 0 from disk (*/full; 1 could not be written)
