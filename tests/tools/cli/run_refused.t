# Files that cannot be run: exit code 2 and what is wrong with them; 3 if a file cannot even be read.
$ kiln run missing.safetensors
kiln: missing.safetensors: No such file or directory
[3]
$ kiln run .
kiln: .: not a safetensors file: it is not a regular file
[2]
$ : > empty; kiln run empty
kiln: empty: not a safetensors file: it is empty
[2]
$ head -c 100 $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > cut; kiln run cut
kiln: cut: the file ends inside its header: * bytes of header, 100 of file
[2]
$ head -c -1 $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > cut; kiln run cut
kiln: cut: tensor "*" has bytes *; the file has * after its header
[2]
$ sed 's/load_balance_backward/load_balance_forwards/' $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > renamed; kiln run renamed
kiln: renamed: metadata "op": "load_balance_forwards" is not an operation; there are *
[2]
$ sed 's/top_k/top_m/' $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > option; kiln run option
kiln: load_balance_backward has no option "top_m"; it has accumulate, top_k
[2]
$ sed 's/in.training/in.trainink/' $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > tensor; kiln run tensor
kiln: tensor: tensor "in.trainink" is not in.<argument> or out.<output> of load_balance_backward; "kiln ops load_balance_backward" lists them
[2]
$ sed 's/in.expert_mask/in.router_mask/' $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > tensor; kiln run tensor
kiln: tensor: tensor "in.router_mask" is not *
[2]
$ kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --dtype grad_expert_mask_out=bf16
kiln: --dtype grad_expert_mask_out=bf16: grad_expert_mask_out may be f32
[2]
$ kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --dtype training=bool
kiln: --dtype training=bool: wanted OUTPUT=TYPE with an output of load_balance_backward
[2]
$ kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --option top_k=x
kiln: option top_k of load_balance_backward is "x"; wanted a whole number
[2]
$ kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --device moon
kiln: *moon*
[2]
# Headers changed in place, to the same length.
$ sed 's/in[.]training/out.trainin/' $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > tensor; kiln run tensor
kiln: tensor: tensor "out.trainin" is not in.<argument> or out.<output> of load_balance_backward; *
[2]
$ sed 's/:"{/:"[/' $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors > option; kiln run option
kiln: option: metadata "options" is not a JSON object: *
[2]
$ kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --option accumulate=grad_expert_mask_out
kiln: *: grad_expert_mask_out is added to, so the file must hold "in.grad_expert_mask_out"
[2]
$ kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --option accumulate=grad
kiln: option accumulate: load_balance_backward has no output "grad"
[2]
