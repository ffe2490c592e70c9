# The operations, as the interface table has them.
$ kiln ops load_balance_backward
load_balance_backward  (benchmark problem 042)
       argument                types  shape  strides
  in   grad_tokens_per_expert  f32    [E]    rows
  in   grad_expert_mask        f32    [B,E]  rows
  in   grad_load_balance_loss  f32    [1]    rows
  in?  topk_idx                any    [B,K]  any
  in?  expert_mask             any    [B,E]  any
  in?  tokens_per_expert       any    [E]    any
  in   training                bool   [1]    rows
  out  grad_expert_mask_out    f32    [B,E]  rows
  option top_k: default 0
$ kiln ops load_balance_backward --json | head -4
[
  {
    "name": "load_balance_backward",
    "problem": 42,
$ kiln ops softmax
kiln: "softmax" is not an operation; there are load_balance_backward, router_backward, *
[2]
