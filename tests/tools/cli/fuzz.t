# kiln fuzz: what it says and keeps; that it finds wrong kernels is the business of tests/planted.
$ kiln fuzz load_balance_backward gemm --cases 4 --work 1e5 --seed 3
4 cases in * s, 0 findings, 0 known
  * largest error 0.* of its bound
  * largest error 0.* of its bound
drawn:
  op * load_balance_backward: 2 gemm: 2
...
$ kiln fuzz gemm --seed 3 --case 1 --work 1e5 | head -2
1 cases in * s, 0 findings, 0 known
  gemm * largest error 0.* of its bound
# Sizes and the scale may be given.
$ kiln fuzz gemm M=5 N=7 K=11 --scale 1e-3 --cases 2 | grep -E 'size|scale'
  size K * 2-15: 2
  size M * 2-15: 2
  size N * 2-15: 2
  scale * 0.001: 2
$ kiln fuzz routed_experts_backward E=5 L=3 --work 1e5 --cases 1 | grep -E 'size (E|L)'
  size E * 2-15: 1
  size L * 2-15: 1
$ kiln fuzz gemm --cases 2 --work 1e5 --json | grep -E '^  "'
  "device": "sim",
  "seed": 1,
  "cases": 2,
  "findings": 0,
  "known": 0,
  "seconds": *,
  "worst": {
  "rows": [],
  "drawn": {
  "gpu_products": 0
# A ledger says why; rows that nothing matched are listed.
$ echo '[{"op": "gemm", "kind": "fault", "why": "an old driver"}]' > known.json
$ kiln fuzz gemm --cases 1 --work 1e5 --known known.json | head -2
not seen: an old driver
1 cases in * s, 0 findings, 0 known
$ echo '[{"op": "gemm"}]' > known.json
$ kiln fuzz gemm --cases 1 --known known.json
kiln: known.json: row 1 does not say why
[2]
# A golden case is no fuzz case.
$ kiln fuzz --replay $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors
kiln: *.safetensors has no description of a fuzz case
[2]
# What is wrong with a command line.
$ kiln fuzz gem
kiln: "gem" is not an operation; there are load_balance_backward, *
[2]
$ kiln fuzz gemm M=many
kiln: M=many is "many"; wanted a whole number from 0 to *
[2]
$ kiln fuzz gemm load_balance_backward M=5 Q=3
kiln: Q=3: no operation that is fuzzed has a size Q
[2]
$ kiln fuzz router_backward F=3 --cases 1
kiln: F=3: no operation that is fuzzed has a size F
[2]
$ kiln fuzz gemm --cases 0
kiln: --cases must be at least 1
[2]
$ kiln fuzz gemm --cases 1 --known missing.json
kiln: missing.json: No such file or directory
[3]
$ kiln fuzz gemm --cases 1 -o /dev/null/found
kiln: /dev/null/found: Not a directory
[3]
$ kiln fuzz gemm --scale -1
kiln: --scale is "-1"; wanted a positive number
[2]
$ kiln fuzz gemm --findings 0
kiln: --findings must be at least 1
[2]
$ kiln fuzz gemm --device tpu
kiln: device is "tpu"; wanted *
[2]
# On a GPU, played by a fake whose kernels compute nothing: what they leave is found, and so is an oracle that does not multiply.
$ KILN_CACHE_DIR=off KILN_LIBNVRTC=off KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln fuzz gemm --device cuda:0 M=5 N=7 K=3 --cases 3 --findings 1 --no-shrink
finding: wrong: d[*
  kiln fuzz gemm --seed 1 --case *
  case: * gemm M=5 N=7 K=3 *
  d[*
  replay: kiln fuzz --replay ./fuzz-gemm-1-*.safetensors
  data: * kiln run ./fuzz-gemm-1-*.safetensors --check
oracle: the host alone: no NVRTC: KILN_LIBNVRTC is "off"
...
kiln: 1 of * cases failed
[1]
$ if kiln env | grep -q 'NVRTC .*libnvrtc'; then KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln fuzz gemm --device cuda:0 --cases 1 2>&1 | tail -1; else echo "kiln: the oracle's product (no NVRTC here)"; fi || true
kiln: the oracle's product *
