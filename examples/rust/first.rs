// rustc -O examples/rust/first.rs -L build/release -l kiln -C link-arg=-Wl,-rpath,$PWD/build/release -o first && ./first
//! The smallest whole program, without crates: one backward pass on host memory, on the simulator.
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void}; // where Rust 1.63 has them, too
use std::ptr::{null, null_mut};

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct CommonOptions {
    struct_size: u32,
    flags: u32,
    accumulate: u64,
    workspace: *mut c_void,
    workspace_bytes: u64,
}

#[repr(C)]
struct LoadBalanceOptions {
    common: CommonOptions,
    top_k: i32,
    reserved: i32,
}

type Tensor = *const DLTensor;
extern "C" {
    fn kiln_context_create(device: *const c_char, options: *const c_void, out: *mut *mut c_void) -> i32;
    fn kiln_context_destroy(ctx: *mut c_void) -> i32;
    fn kiln_error_message() -> *const c_char;
    fn kiln_version() -> *const c_char;
    fn kiln_load_balance_backward(ctx: *mut c_void, tokens: Tensor, mask: Tensor, loss: Tensor, topk_idx: Tensor,
        expert_mask: Tensor, tokens_per_expert: Tensor, training: Tensor, out: Tensor,
        options: *const LoadBalanceOptions, stream: *mut c_void) -> i32;
}

fn text(s: *const c_char) -> String {
    unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned()
}

fn check(status: i32) {
    if status != 0 {
        panic!("{}", text(unsafe { kiln_error_message() }));
    }
}

fn tensor<T>(data: &[T], code: u8, shape: &[i64]) -> DLTensor {
    DLTensor { data: data.as_ptr() as *mut c_void, device_type: 1, device_id: 0, ndim: shape.len() as i32, code,
        bits: 8 * std::mem::size_of::<T>() as u8, lanes: 1, shape: shape.as_ptr(), strides: null(), byte_offset: 0 }
}

fn main() {
    const B: usize = 4;
    const E: usize = 8;
    const K: i32 = 2;
    let tokens: Vec<f32> = (0..E).map(|e| e as f32).collect();
    let mask: Vec<f32> = (0..B * E).map(|i| i as f32 / 4.0).collect();
    let (loss, training, out) = ([2f32], [1u8], vec![0f32; B * E]);
    let (e, be, one) = ([E as i64], [B as i64, E as i64], [1i64]);
    let options = LoadBalanceOptions {
        common: CommonOptions { struct_size: std::mem::size_of::<LoadBalanceOptions>() as u32, flags: 0, accumulate: 0,
            workspace: null_mut(), workspace_bytes: 0 },
        top_k: K, reserved: 0 };
    let device = CString::new("sim").unwrap();
    let mut ctx = null_mut();
    unsafe {
        check(kiln_context_create(device.as_ptr(), null(), &mut ctx));
        check(kiln_load_balance_backward(ctx, &tensor(&tokens, 2, &e), &tensor(&mask, 2, &be), &tensor(&loss, 2, &one),
            null(), null(), null(), &tensor(&training, 6, &one), &tensor(&out, 2, &be), &options, null_mut()));
        check(kiln_context_destroy(ctx));
    }
    for i in 0..B * E {
        let exact = mask[i] + tokens[i % E] + loss[0] / (B as i32 * K) as f32;
        assert!((out[i] - exact).abs() < 1e-5, "element {i} is {}, wanted {exact}", out[i]);
    }
    println!("kiln {} gave the right [{B}, {E}]", text(unsafe { kiln_version() }));
}
