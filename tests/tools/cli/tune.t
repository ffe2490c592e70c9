# kiln tune: what the files and command lines say. How candidates are measured: tools/tune.
$ kiln tune gemm M=64 N=512 K=1024 --device sim
kiln: kiln tune measures on a GPU; the device is sim
[2]
$ kiln tune gemm M=64 N=512 K=1024 --top 1
kiln: --top must be 2 to 64
[2]
$ kiln tune gemm M=64 N=512 K=1024 --iterations 0
kiln: --iterations must be at least 1
[2]
$ kiln tune gemm M=64 N:512
kiln: "N:512" is not an axis of gemm; wanted AXIS=SIZE with a letter of its shapes
[2]
$ kiln tune gemm M=64 N=512 K=1024 Q=5
kiln: "Q=5" is not an axis of gemm; wanted AXIS=SIZE with a letter of its shapes
[2]
$ kiln tune gemm M=64 N=512 K=1024 --case 0
kiln: --case must be at least 1
[2]
$ kiln tune gemm M=64 N=512 K=1024 --dtype fp8
kiln: --dtype fp8: wanted TYPE (bf16, f16, f32, i32, i64, bool), or ARGUMENT=TYPE with an argument of gemm
[2]
$ kiln tune gemm M=64 N=512 K=1024 --dtype a=fp8
kiln: --dtype a=fp8: a may be bf16,f16,f32
[2]
$ kiln tune gemm M=64 N=512 K=1024 --transposed c
kiln: the command line: "transposed" names c, which is no argument of gemm
[2]
$ kiln tune gemm --record calls.jsonl
kiln: --record stands alone: the recording has all sizes
[2]
$ kiln tune --record calls.jsonl
kiln: calls.jsonl: No such file or directory
[3]
$ echo '{"v":1}' >calls.jsonl; kiln tune --record calls.jsonl
kiln: calls.jsonl:1 is no line of a recording
[2]
$ kiln tune gemm --case 1000
kiln: --case 1000: there are * cases
[2]
# On a GPU, played by the fake driver, every candidate takes the same time: the choice by cost stays.
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln tune gemm M=64 N=512 K=1024 --dtype a=bf16 --device cuda:0 --no-cupti --iterations 1 --top 2 -o fake.tuning
  product  sizes * by cost * us  best * us  of  loss
  gemm     64x512x1024 * the same * 2  0.0%
1 products: the choices by cost are 0.0% slower than the best measured ones on average, 0.0% in the worst case
fake.tuning has the choices; a context follows it when KILN_TUNING names it
$ sed -E 's/^date .*/date/' fake.tuning
kiln-tuning 1
gpu Fake GPU 9.0
date
product wgmma:bf16:k.n:store.bf16:64x512x1024 * # gemm: * us; by cost *: * us; 2 measured
# A type without an argument is for all whose type is free, as for kiln plan: d is not the default here.
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln tune gemm M=64 N=512 K=1024 --dtype f16 --device cuda:0 --no-cupti --iterations 1 --top 2 --json | grep '"key"'
      "key": "wgmma:f16:k.n:store.f16:64x512x1024",
$ KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln tune gemm M=64 N=512 K=1024 --dtype f16 --dtype d=f32 --device cuda:0 --no-cupti --iterations 1 --top 2 --json | grep '"key"'
      "key": "wgmma:f16:k.n:store.f32:64x512x1024",
# A recording of the same call; what the file says is followed.
$ printf '{"v":1,"op":"gemm","args":{"a":{"dtype":"bf16","shape":[64,1024]},"b":{"dtype":"bf16","shape":[1024,512]},"d":{"dtype":"bf16","shape":[64,512]}},"options":{}}\n' >calls.jsonl; KILN_LIBCUDA=$BUILD/fake/fakecuda/libcuda.so.1 kiln tune --record calls.jsonl --device cuda:0 --no-cupti --iterations 1 --top 2 --json | grep -E '"(gpu|key|call)"'
  "gpu": "Fake GPU 9.0",
      "call": "gemm M=64 N=512 K=1024",
      "key": "wgmma:bf16:k.n:store.bf16:64x512x1024",
$ KILN_TUNING=fake.tuning kiln plan gemm M=64 N=512 K=1024 --dtype bf16 --device sim --no-assembler
kiln: fake.tuning:2 was measured on Fake GPU 9.0; the context's device is NVIDIA H200*
[2]
$ sed -E 's/Fake GPU 9.0/NVIDIA H200/; s/1024 [^ ]+ /1024 coop-128x64-swap /' fake.tuning >h200.tuning; KILN_TUNING=h200.tuning kiln plan gemm M=64 N=512 K=1024 --dtype bf16 --device sim --no-assembler --explain | grep -E 'M x N|^  > '
gemm, 64x512x1024 (M x N x K): coop-128x64-swap on the path wgmma, as the tuning file says
  > coop-128x64-swap *
$ echo "no choices" > text; KILN_TUNING=text kiln plan gemm M=64 N=512 K=1024 --dtype bf16 --device sim
kiln: text:1: wanted "kiln-tuning 1", saw "no choices": * (KILN_E_FORMAT)
[2]
$ KILN_TUNING=missing kiln env >/dev/null; KILN_TUNING=missing kiln plan gemm M=64 N=512 K=1024 --dtype bf16 --device sim
kiln: missing: * (KILN_E_IO)
[3]
