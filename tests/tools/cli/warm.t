# kiln warm: kernels ahead of time. On the simulator a kernel is PTX, and no assembler is needed.
$ kiln warm --model GLM-4.5-Air --op load_balance_backward,router_backward --tokens 1,1024,4096 --device sim -o a.pack | sed 's/ in .*//'
6 calls, * kernels: * built, 0 cached, 0 failed,
a.pack: * entries
$ ls
a.pack
# The same again builds nothing, also where nobody can write.
$ mkdir ro; mv a.pack ro; chmod 0555 ro; kiln warm --model GLM-4.5-Air --op load_balance_backward,router_backward --tokens 1,1024,4096 --device sim --pack ro/a.pack | grep -c ' 0 built'; chmod 0755 ro
1
# More is added to what is there.
$ kiln warm --model Qwen3-30B-A3B --op load_balance_backward --device sim --pack ro/a.pack | sed 's/ in .*//'
8 calls, 1 kernels: * built, * cached, 0 failed,
...
$ kiln cache verify ro/a.pack
* entries expanded again and compared, 0 bad
# An interrupted run left a part beside the pack that it was to become: the next one goes on from there.
$ kiln warm --model GLM-5 --op load_balance_backward --tokens 8 --device sim --cache $PWD/b.pack.parts > /dev/null; kiln warm --model GLM-5 --op load_balance_backward,grouped_gemm,router_backward --tokens 8 --device sim -o b.pack | sed 's/ in .*//'; ls -d b.pack*
grouped_gemm is nothing that GLM-5 does: it is no operation of a layer
2 calls, * kernels: * built, 1 cached, 0 failed,
b.pack: * entries
b.pack
# Into the cache, for two machines; then it is all there.
$ kiln warm --model DeepSeek-V3 --op load_balance_backward --device sim:sm_90a,sim:sm_80 -j 2 | sed 's/ in .*//'
8 calls, 2 kernels: 2 built, 0 cached, 0 failed,
$ kiln warm --model DeepSeek-V3 --op load_balance_backward --device sim:sm_90a,sim:sm_80 --json | grep -E '"(kernels|built|cached|failed)"' | head -4
  "kernels": 2,
  "built": 0,
  "cached": 2,
  "failed": 0,
# Exact kernels beside the generic ones.
$ kiln warm --model DeepSeek-V3 --op load_balance_backward --tokens 64,128 --device sim --cache $PWD/exact --exact | sed 's/ in .*//'
2 calls, 3 kernels: 3 built, 0 cached, 0 failed,
# What a program recorded, warmed, and run without building.
$ KILN_RECORD=$PWD/shapes.jsonl kiln run $GOLDEN/load_balance_backward/b37_e256_k8_t1.safetensors --no-assembler > /dev/null
$ KILN_RECORD=$PWD/shapes.jsonl kiln run $GOLDEN/router_backward/t33_h64_e16_k4.safetensors --no-assembler > /dev/null
$ KILN_RECORD=$PWD/shapes.jsonl kiln run $GOLDEN/moe_layer_backward/t20_h64_i48_e16_k4.safetensors --no-assembler > /dev/null
$ wc -l < shapes.jsonl
3
$ kiln warm shapes.jsonl --device sim -o shapes.pack | sed 's/ in .*//'
3 calls, * kernels: * built, 0 cached, 0 failed,
shapes.pack: * entries
$ export KILN_ON_MISS=error KILN_CACHE_DIR=off KILN_CACHE_RO=$PWD/shapes.pack; for f in load_balance_backward/b37_e256_k8_t1 router_backward/t33_h64_e16_k4 moe_layer_backward/t20_h64_i48_e16_k4; do kiln run $GOLDEN/$f.safetensors --check --no-assembler | grep -E 'cache:|check'; done
cache: 0 built, * from packs*
check passed
cache: 0 built, * from packs*
check passed
cache: 0 built, * from packs*
check passed
# Packs in layers, and merged into one.
$ for n in 1 3; do sed -n ${n}p shapes.jsonl | kiln warm - --device sim -o $n.pack > /dev/null; done; kiln cache merge 1.pack 3.pack -o both.pack
both.pack: * entries
$ export KILN_ON_MISS=error KILN_CACHE_DIR=off; for ro in $PWD/1.pack:$PWD/3.pack $PWD/both.pack; do for f in load_balance_backward/b37_e256_k8_t1 moe_layer_backward/t20_h64_i48_e16_k4; do KILN_CACHE_RO=$ro kiln run $GOLDEN/$f.safetensors --no-assembler | grep -o 'cache: 0 built'; done; done | uniq -c
* 4 cache: 0 built
# A shape that was not listed: the sentence ends with the line to add, and that line is enough.
$ KILN_ON_MISS=error KILN_CACHE_DIR=off KILN_CACHE_RO=$PWD/shapes.pack kiln run $GOLDEN/router_backward/t130_h136_e60_k8.safetensors --check --no-assembler
kiln: router_backward: kernel router_*.ptxt (*) for sm_90a is in no cache layer, and KILN_ON_MISS is error; the line to add to the warm list is {"v":1,"op":"router_backward",*} (KILN_E_NOT_CACHED)
[3]
$ KILN_ON_MISS=error KILN_CACHE_DIR=off KILN_CACHE_RO=$PWD/shapes.pack kiln run $GOLDEN/router_backward/t130_h136_e60_k8.safetensors --no-assembler 2>&1 | sed 's/.*warm list is //; s/ (KILN_E_NOT_CACHED)$//' >> shapes.jsonl; wc -l < shapes.jsonl
4
$ kiln warm shapes.jsonl --device sim -o shapes.pack | sed 's/ in .*//'
4 calls, * kernels: * built, * cached, 0 failed,
shapes.pack: * entries
$ KILN_ON_MISS=error KILN_CACHE_DIR=off KILN_CACHE_RO=$PWD/shapes.pack kiln run $GOLDEN/router_backward/t130_h136_e60_k8.safetensors --check --no-assembler | grep -E 'cache:|check'
cache: 0 built, * from packs*
check passed
# Where nothing can be built, where nothing can be kept, and where not all of it can be.
$ KILN_LIBNVJITLINK=off kiln warm --model DeepSeek-V3 --op router_backward --tokens 8,16 --arch sm_90a --cache $PWD/none
failed: router_backward of DeepSeek-V3/R1 T=8 on offline:sm_90a
  router_backward: nvJitLink is switched off: KILN_LIBNVJITLINK is "off" (KILN_E_UNAVAILABLE)
  {"v":1,"op":"router_backward",*
failed: router_backward of DeepSeek-V3/R1 T=16 *
...
2 calls, 2 kernels: 0 built, 0 cached, 2 failed, *
kiln: 2 calls failed: 2 kernels are not there
[1]
$ mkdir -m 700 files files/v1; for i in $(seq 0 255); do : > files/v1/$(printf %02x $i); done; KILN_LOG=0 kiln warm --model DeepSeek-V3 --op load_balance_backward --device sim --cache $PWD/files
kiln: 1 kernels could not be written to */files
[3]
$ KILN_CACHE_MAX=800K kiln warm --model DeepSeek-V3 --device sim --cache $PWD/small
kiln: * kernels had to leave */small again: KILN_CACHE_MAX is too small
[3]
$ kiln warm --models --json | grep -c '"model": "'
49
# An operation that the model does not have.
$ kiln warm --model Qwen3-30B-A3B --op moe_layer_backward --device sim
kiln: there is nothing to build: moe_layer_backward is nothing that Qwen3-30B-A3B does: its router's scores are no sigmoids
[2]
$ : > none.jsonl; kiln warm none.jsonl --device sim
kiln: there is nothing to build: no call is listed
[2]
# Calls that fail are listed with their line, the others are built, and the exit code says so.
$ { head -1 shapes.jsonl; head -1 shapes.jsonl | sed 's/\[37,256\]/[37,255]/'; } > half.jsonl; kiln warm half.jsonl --device sim --cache $PWD/half | sed 's/ in .*//'; echo ${PIPESTATUS[0]}
kiln: 1 calls failed: 0 kernels are not there
failed: load_balance_backward of half.jsonl:2 on sim
  load_balance_backward: *
2 calls, 1 kernels: 1 built, 0 cached, 0 failed,
1
# Counting without building.
$ kiln warm --model all --op load_balance_backward --arch sm_90a --dry-run | tail -2
Granite-4.0-H-Small * load_balance_backward * 1
392 calls, * kernels
# Operations that are nothing a model does are left out, and said.
$ kiln warm --model Mixtral-8x7B --op moe_layer_backward,load_balance_backward --tokens 8 --device sim | sed 's/ in .*//'
moe_layer_backward is nothing that Mixtral-8x7B does: its router's scores are no sigmoids
1 calls, 1 kernels: 1 built, 0 cached, 0 failed,
$ kiln warm --models | sed -n '1p; /GLM-4.5-Air/p'
model * H * operations
GLM-4.5-Air * 4096 * 1408 * 128 * 8 * sigmoid * load router expert moe routed
# What is wrong with a command line or a list.
$ kiln warm shapes.jsonl
kiln: kiln warm needs --arch (sm_90a,sm_80) or --device (h200,a100,cuda:0,sim)
[2]
$ kiln warm --arch sm_90a
kiln: kiln warm needs files of recorded shapes, or --model NAME (--model all)
[2]
$ kiln warm --model GLM --arch sm_90a
kiln: no model is called "GLM"; GLM-4.5-Air, GLM-4.5/4.6/4.7, GLM-5 are; "kiln warm --models" lists them
[2]
$ kiln warm --model GLM-5 --tokens 1,x --arch sm_90a
kiln: --tokens is "x"; wanted a whole number from 0 to 9223372036854775807
[2]
$ kiln warm --model GLM-5 --op no_such --arch sm_90a
kiln: "no_such" is not an operation; *
[2]
$ kiln warm shapes.jsonl --tokens 5 --arch sm_90a
kiln: --tokens and --op go with --model; lines of files have both
[2]
$ kiln warm missing.jsonl --arch sm_90a
kiln: missing.jsonl: No such file or directory
[3]
$ echo 'nonsense' > bad.jsonl; kiln warm bad.jsonl --device sim
kiln: bad.jsonl:1: *
[2]
$ echo '{"v":2,"op":"gemm"}' > bad.jsonl; kiln warm bad.jsonl --device sim
kiln: bad.jsonl:1: wanted {"v":1,"op":...}, as KILN_RECORD writes it
[2]
$ echo '{"v":1,"op":"gemm","args":{"a":{"dtype":"bf16","shape":[4,4]},"x":{"dtype":"f32","shape":[1]}},"options":{}}' > bad.jsonl; kiln warm bad.jsonl --device sim
kiln: bad.jsonl:1: gemm has no argument "x"
[2]
$ echo '{"v":1,"op":"gemm","args":{"a":{"dtype":"bf17","shape":[4,4]}},"options":{}}' > bad.jsonl; kiln warm bad.jsonl --device sim
kiln: bad.jsonl:1: the dtype of a is "bf17", which is none
[2]
$ echo '{"v":1,"op":"gemm","args":{"a":{"dtype":"bf16","shape":[4,-4]}},"options":{}}' > bad.jsonl; kiln warm bad.jsonl --device sim
kiln: bad.jsonl:1: a needs "shape", a list of sizes
[2]
$ echo '{"v":1,"op":"gemm","args":{"a":{"dtype":"bf16","shape":[4,4],"align":3}},"options":{}}' > bad.jsonl; kiln warm bad.jsonl --device sim
kiln: bad.jsonl:1: "align" of a must be a power of two up to 128
[2]
# A directory that cannot hold what is built is no success.
$ kiln warm --model GLM-5 --op load_balance_backward --tokens 8 --device sim --cache off
kiln: kernels were built and not kept: *
[3]
# The family of a model decides the router's options.
$ kiln plan router_backward --model DeepSeek-V3 T=100 --no-assembler --explain | grep -c 'SCORE=sigmoid'
*
$ kiln plan router_backward --model qwen3-30b-a3b T=100 --no-assembler | head -1
router_backward  T=100 H=2048 E=128 K=8  for sm_90a (*)
$ kiln plan router_backward --model Kimi-K2.5 T=100 E=64 --json --no-assembler | grep -A3 '"options"'
*"options": {
*"score": "sigmoid",
*"normalise": "sum_eps",
*"scaling": 2.827
$ kiln plan router_backward --model ERNIE-4.5-300B-A47B T=100 --json --no-assembler | grep -A2 '"options"'
*"options": {
*"normalise": "sum_clamp",
*"eps": 1e-12*
$ kiln plan moe_layer_backward --model Mixtral-8x7B T=1
kiln: moe_layer_backward is nothing that Mixtral-8x7B does: its router's scores are no sigmoids
[2]
$ kiln plan load_balance_backward --model GLM-4.5 --variants --tokens 1,77,100000
load_balance_backward  GLM-4.5/4.6/4.7  for sm_90a (*): 1 kernels for 3 token counts
  kernel * tokens
  kiln_load_balance_bN_e160* *,* all
$ kiln plan load_balance_backward --model GLM-4.5 --variants B=4
kiln: B=4: --variants takes the numbers of tokens from --tokens
[2]
$ kiln plan load_balance_backward --variants
kiln: --variants and --tokens go with --model: --model NAME --variants
[2]
# A model's operation has at most 8 kernels for all numbers of tokens; the routed experts, with their sort, 14 on Hopper.
$ kiln warm --model all --op load_balance_backward,router_backward,expert_mlp_backward,moe_layer_backward --tokens 1,7,33,100,300,777,1500,3000,5000,8192,20000,131072 --arch sm_90a,sm_80 --dry-run | awk '$NF + 0 > 8'
$ kiln warm --model all --op routed_experts_backward --tokens 1,7,33,100,300,777,1500,3000,5000,8192,20000,131072 --arch sm_90a --dry-run | awk '$NF + 0 > 14'
$ kiln warm --model all --op routed_experts_backward --tokens 1,7,33,100,300,777,1500,3000,5000,8192,20000,131072 --arch sm_80 --dry-run | awk '$NF + 0 > 17'
# One pack serves all machines of an architecture.
$ for d in h200 h200,h100-pcie,h20; do kiln warm --model GLM-4.5-Air --device $d --dry-run | tail -1; done | uniq | wc -l
1
